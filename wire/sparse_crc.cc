#include "wire/sparse_crc.h"

#include <zlib.h>

#include <algorithm>
#include <cstring>

#include "wire/gf2.h"

namespace wire {
namespace {

// A CRC is the remainder by the CRC's polynomial. Dividing by a multiple of the
// polynomial first does not change it. This multiple,
//
//   x^2400 + x^1240 + x^936 + x^712 + 1,
//
// has the fewest terms for its size, all at whole bytes. Dividing by it xors
// earlier quotient bytes at four distances and leaves 300 bytes. The two
// highest terms are far apart, so eight-byte words do not depend on their
// neighbors.
constexpr size_t kSpan = 300;  // bytes
constexpr size_t kSecond = 155;
constexpr size_t kThird = 117;
constexpr size_t kFourth = 89;
static_assert((gf2::PowerOfX(8 * kSpan) ^ gf2::PowerOfX(8 * kSecond) ^
               gf2::PowerOfX(8 * kThird) ^ gf2::PowerOfX(8 * kFourth) ^
               gf2::kOne) == 0);

using Word = uint64_t;
constexpr size_t kWord = sizeof(Word);

// Below this size the division saves too little.
constexpr size_t kMin = 3 * kSpan;
// Maximum size of one piece, whose quotient is on the stack: one packet.
constexpr size_t kMax = 4096 + kSpan;

Word Load(const uint8_t* p) {
  Word word;
  std::memcpy(&word, p, kWord);
  return word;
}

// The next dividend word minus what the quotient so far subtracts from it.
// `quotient` points to the word kSpan bytes earlier.
Word Reduced(const uint8_t* data, const uint8_t* quotient) {
  return Load(data) ^ Load(quotient + kSecond) ^ Load(quotient + kThird) ^
         Load(quotient + kFourth) ^ Load(quotient);
}

// kMin <= size <= kMax.
uint32_t Piece(uint32_t crc, const uint8_t* data, size_t size) {
  const size_t divided = (size - kSpan) / kWord * kWord;
  const size_t rest = size - divided;
  // Zeros before the first quotient word and after the last one.
  uint8_t quotient[kSpan + kMax + kWord];
  std::memset(quotient, 0, kSpan);
  std::memset(quotient + kSpan + divided, 0, rest + kWord);
  // The CRC so far is xored into the first four bytes. Only the first word
  // reads them.
  const uint32_t before = ~crc;
  std::memcpy(quotient, &before, sizeof(before));
  for (size_t i = 0; i < divided; i += kWord) {
    const Word word = Reduced(data + i, quotient + i);
    std::memcpy(quotient + kSpan + i, &word, kWord);
  }
  // `rest` may not be whole words: the last one overlaps.
  uint8_t remainder[kSpan + kWord];
  for (size_t i = 0; i < rest; i += kWord) {
    const size_t at = std::min(i, rest - kWord);
    const Word word = Reduced(data + divided + at, quotient + divided + at);
    std::memcpy(remainder + at, &word, kWord);
  }
  // zlib inverts the CRC before and after: this starts from zero.
  return static_cast<uint32_t>(crc32_z(~uint32_t{0}, remainder, rest));
}

}  // namespace

uint32_t SparseCrc(uint32_t crc, const uint8_t* data, size_t size) {
  while (size >= kMin) {
    const size_t piece = std::min(size, kMax);
    crc = Piece(crc, data, piece);
    data += piece;
    size -= piece;
  }
  if (size == 0) return crc;
  return static_cast<uint32_t>(crc32_z(crc, data, size));
}

}  // namespace wire
