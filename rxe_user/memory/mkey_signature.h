// The block signatures of one memory key: its configuration, and what is known
// of blocks that have been transferred in part.
#ifndef RXE_USER_MEMORY_MKEY_SIGNATURE_H_
#define RXE_USER_MEMORY_MKEY_SIGNATURE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>

#include "rxe_user/memory/signature/signature_config.h"
#include "rxe_user/memory/signature/signature_converter.h"

namespace rxe_user {

// Thread: changes of the configuration exclude all other calls; those exclude
// each other by a lock, which is never held while memory is accessed.
class MkeySignature {
 public:
  // --- The owner excludes other calls.

  // From now on blocks begin anew. `memory_length`: of the layout, bytes.
  // Nothing: there are no signatures.
  void Set(const std::optional<SignatureConfig>& config,
           uint64_t memory_length);

  // --- Any thread, while no other one changes the configuration.

  const std::optional<SignatureConfig>& config() const { return config_; }
  // Nothing: there are no signatures.
  const std::optional<SignatureConverter>& converter() const {
    return converter_;
  }

  // A conversion of bytes, which may end after the configuration has changed.
  struct Conversion {
    SignatureConverter converter;
    SignatureCursor cursor = {};
    SignatureError error = {};
    uint64_t begin = 0;  // in the wire form
    uint32_t generation = 0;
    bool scatters = false;
  };
  // Begins one at `place` of the wire form. There are signatures.
  Conversion Begin(uint64_t place, bool scatters);
  // It has ended. Notes its error, if that is the first one. Transfers that
  // stand behind bytes that it has written read these again.
  void End(const Conversion& conversion);

  // The first error that was not taken yet.
  SignatureError TakeError();
  bool has_error();

 private:
  struct Slot {
    SignatureCursor cursor;
    bool scatters = false;
  };

  std::optional<SignatureConfig> config_;
  std::optional<SignatureConverter> converter_;
  uint32_t generation_ = 0;

  std::mutex mutex_;
  // Of the transfers that stand inside a block. If there are more at a time,
  // the oldest is lost: its block is read again, and its signature is not
  // checked if part of that had arrived. Guarded by mutex_.
  std::array<Slot, 8> slots_;
  size_t oldest_ = 0;     // guarded by mutex_
  SignatureError error_;  // guarded by mutex_
};

}  // namespace rxe_user

#endif  // RXE_USER_MEMORY_MKEY_SIGNATURE_H_
