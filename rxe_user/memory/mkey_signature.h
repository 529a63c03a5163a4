// The block signatures of one memory key: its configuration, and the state of
// blocks that have been transferred in part.
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

// Thread: changing the configuration excludes all other calls. Those exclude
// each other by a lock, which is never held while memory is accessed.
class MkeySignature {
 public:
  // --- The owner excludes all other calls.

  // Sets the configuration; all blocks start anew. `memory_length`: bytes of
  // the layout. nullopt: no signatures.
  void Set(const std::optional<SignatureConfig>& config,
           uint64_t memory_length);

  // --- Any thread, unless another one is changing the configuration.

  const std::optional<SignatureConfig>& config() const { return config_; }
  // nullopt: no signatures.
  const std::optional<SignatureConverter>& converter() const {
    return converter_;
  }

  // A conversion of bytes. It may end after the configuration has changed.
  struct Conversion {
    SignatureConverter converter;
    SignatureCursor cursor = {};
    SignatureError error = {};
    uint64_t begin = 0;  // in the wire form
    uint32_t generation = 0;
    bool scatters = false;
  };
  // Begins a conversion at `place` of the wire form. Call it only if there are
  // signatures.
  Conversion Begin(uint64_t place, bool scatters);
  // Ends a conversion. Records its error unless one waits to be taken.
  // Invalidates the cursors of transfers that are beyond bytes that this
  // conversion has written, so that they read these again.
  void End(const Conversion& conversion);

  // The first error since the last call.
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
  // The cursors of transfers that have stopped inside a block. If there are too
  // many, the oldest is lost: its block is read again, and its signature is not
  // checked if part of it had arrived. Guarded by mutex_.
  std::array<Slot, 8> slots_;
  size_t oldest_ = 0;     // guarded by mutex_
  SignatureError error_;  // guarded by mutex_
};

}  // namespace rxe_user

#endif  // RXE_USER_MEMORY_MKEY_SIGNATURE_H_
