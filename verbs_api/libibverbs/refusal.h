// Why a call of the C ABI is refused. A call that succeeds does not come here.
#ifndef VERBS_API_LIBIBVERBS_REFUSAL_H_
#define VERBS_API_LIBIBVERBS_REFUSAL_H_

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

}  // namespace verbs_api

#endif  // VERBS_API_LIBIBVERBS_REFUSAL_H_
