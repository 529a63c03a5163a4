// Reads the bytes of a fuzz input as numbers.
#ifndef TESTS_FUZZ_FUZZ_INPUT_H_
#define TESTS_FUZZ_FUZZ_INPUT_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

namespace fuzz {

// Does not own the bytes. Reads beyond the end give 0.
class FuzzInput {
 public:
  FuzzInput(const uint8_t* data, size_t size) : rest_(data, size) {}

  bool empty() const { return rest_.empty(); }
  uint8_t Byte() {
    if (rest_.empty()) return 0;
    const uint8_t byte = rest_.front();
    rest_ = rest_.subspan(1);
    return byte;
  }
  int8_t Signed() { return static_cast<int8_t>(Byte()); }
  // A number of 2 to 8 bytes, little-endian.
  template <typename Number>
  Number Take() {
    uint64_t number = 0;
    for (size_t i = 0; i < sizeof(Number); ++i) {
      number |= static_cast<uint64_t>(Byte()) << (8 * i);
    }
    return static_cast<Number>(number);
  }
  // A number in [0, n), from one byte.
  uint32_t Below(uint32_t n) { return Byte() % n; }
  // Up to `size` bytes, as many as are left.
  std::span<const uint8_t> Bytes(size_t size) {
    const std::span<const uint8_t> bytes =
        rest_.first(std::min(size, rest_.size()));
    rest_ = rest_.subspan(bytes.size());
    return bytes;
  }

 private:
  std::span<const uint8_t> rest_;
};

}  // namespace fuzz

#endif  // TESTS_FUZZ_FUZZ_INPUT_H_
