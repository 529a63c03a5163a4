#include "wire/sparse_crc.h"

#include <zlib.h>

#include <algorithm>
#include <cstring>

#include "wire/gf2.h"

namespace wire {
namespace {

// A CRC is the remainder by the CRC's polynomial, and that does not change if
// a multiple of the polynomial is divided by first. This multiple,
//
//   x^2400 + x^1240 + x^936 + x^712 + 1,
//
// has the fewest terms of those of its size, all at whole bytes: the division
// is an exclusive or of what went before at four distances, and what remains
// are 300 bytes. Its two highest terms are far apart, so words of eight bytes
// do not depend on their neighbours.
constexpr size_t kSpan = 300;  // bytes
constexpr size_t kSecond = 155;
constexpr size_t kThird = 117;
constexpr size_t kFourth = 89;
static_assert((gf2::PowerOfX(8 * kSpan) ^ gf2::PowerOfX(8 * kSecond) ^
               gf2::PowerOfX(8 * kThird) ^ gf2::PowerOfX(8 * kFourth) ^
               gf2::kOne) == 0);

using Word = uint64_t;
constexpr size_t kWord = sizeof(Word);

// Of fewer bytes too little is divided to be worth it.
constexpr size_t kLeast = 3 * kSpan;
// At a time, on the stack: a packet.
constexpr size_t kMost = 4096 + kSpan;

Word Load(const uint8_t* p) {
  Word word;
  std::memcpy(&word, p, kWord);
  return word;
}

// The next word of the dividend minus what the quotient so far has taken from
// it. `quotient` points to where the word that belongs kSpan earlier is.
Word Reduced(const uint8_t* data, const uint8_t* quotient) {
  return Load(data) ^ Load(quotient + kSecond) ^ Load(quotient + kThird) ^
         Load(quotient + kFourth) ^ Load(quotient);
}

// kLeast <= size <= kMost.
uint32_t Piece(uint32_t crc, const uint8_t* data, size_t size) {
  const size_t divided = (size - kSpan) / kWord * kWord;
  const size_t rest = size - divided;
  // Nothing before the first, and nothing behind the last that is divided.
  uint8_t quotient[kSpan + kMost + kWord];
  std::memset(quotient, 0, kSpan);
  std::memset(quotient + kSpan + divided, 0, rest + kWord);
  // The CRC so far belongs to the first four bytes. Only the first word looks
  // there.
  const uint32_t before = ~crc;
  std::memcpy(quotient, &before, sizeof(before));
  for (size_t i = 0; i < divided; i += kWord) {
    const Word word = Reduced(data + i, quotient + i);
    std::memcpy(quotient + kSpan + i, &word, kWord);
  }
  // `rest` need not be whole words: the last one of it overlaps.
  uint8_t remainder[kSpan + kWord];
  for (size_t i = 0; i < rest; i += kWord) {
    const size_t at = std::min(i, rest - kWord);
    const Word word = Reduced(data + divided + at, quotient + divided + at);
    std::memcpy(remainder + at, &word, kWord);
  }
  // zlib inverts a CRC before and after: this one begins with nothing.
  return static_cast<uint32_t>(crc32_z(~uint32_t{0}, remainder, rest));
}

}  // namespace

uint32_t SparseCrc(uint32_t crc, const uint8_t* data, size_t size) {
  while (size >= kLeast) {
    const size_t piece = std::min(size, kMost);
    crc = Piece(crc, data, piece);
    data += piece;
    size -= piece;
  }
  if (size == 0) return crc;
  return static_cast<uint32_t>(crc32_z(crc, data, size));
}

}  // namespace wire
