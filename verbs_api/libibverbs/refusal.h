// The reports of calls of the C ABI: why a call was refused, its part of a
// recording, and the objects that it made.
#ifndef VERBS_API_LIBIBVERBS_REFUSAL_H_
#define VERBS_API_LIBIBVERBS_REFUSAL_H_

#include <cstdint>
#include <optional>
#include <string>

namespace verbs_api {

// Returns `error`, and notes the check that the calling thread's current call
// has failed.
[[gnu::cold, gnu::noinline]] int Because(int error, const char* check);
[[gnu::cold, gnu::noinline]] int Because(int error, const std::string& check);

// The call has failed: passes it on with the noted check, if there is one
// (rxe_user/observe/refusals.h). `function`: the C++ name of the function that
// implements it, "ibv_modify_qp" or "PostSend". Leaves errno alone.
[[gnu::cold, gnu::noinline]] void ReportRefusal(const char* function,
                                                int error) noexcept;

// Faults on command: the errno value with which the calling thread's call must
// fail instead of being executed; 0: none. Notes the rule as the check that has
// failed. Other rules (call=) do what they do, before the call. `wr_id`: of the
// first request of a post.
[[gnu::cold, gnu::noinline]] int FailOnCommand(
    const char* function, std::optional<uint64_t> wr_id = {}) noexcept;

// --- The recording (`rxe-user run --trace`). Not for posts and polls.

// A call begins: the time, or 0 if the process is not recorded.
int64_t CallBegins() noexcept;
// Adds an argument to the calling thread's call, if that is recorded.
void CallArgument(const char* name, uint64_t value) noexcept;
// The call that began at `began`, not 0, returns.
[[gnu::cold, gnu::noinline]] void CallEnds(const char* function, int64_t began,
                                           int64_t result, int error) noexcept;

// --- The check (check.h).

// A call has made an object. Nothing if the process is not checked.
[[gnu::cold, gnu::noinline]] void NoteMade(const void* object) noexcept;

}  // namespace verbs_api

#endif  // VERBS_API_LIBIBVERBS_REFUSAL_H_
