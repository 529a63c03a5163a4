// The guarded accesses of guarded_copy.cc in assembly for x86-64. Only that
// file includes this one.
#ifndef RXE_USER_MEMORY_GUARDED_X86_64_H_
#define RXE_USER_MEMORY_GUARDED_X86_64_H_

#include <cpuid.h>
#include <ucontext.h>

#include <cstddef>
#include <cstdint>

#include "rxe_user/memory/fold_multipliers.h"
#include "wire/gf2.h"

// All return 0, or 1 from rxe_user_guarded_fault when an access faults. They
// use no stack, so that the handler has nothing to unwind.
//
// rxe_user_guarded_copy(to, from, bytes >= 1, ahead): the last word is loaded
// first and stored last. `rep movs` may store out of order, but a later plain
// store is ordered after all of it (Intel SDM vol. 1, 7.3.9.3; vol. 3A, 8.2.4).
// Other stores may overlap the last word, but never its last byte, nor its last
// four bytes if the number of bytes is a multiple of four. rxe_user_guarded_way
// selects how most of it is copied: 0 by words, 1 by bytes, 2 and above by
// vectors.
//
// rxe_user_guarded_stream(to, from, bytes >= 128, ahead): whole cache lines of
// `to` by non-temporal stores, the parts of lines at both ends by others. Only
// if the way is 2 or more.
//
// rxe_user_guarded_fold(to, from, bytes, crc, constants, ahead): copies a
// multiple of 128 bytes, not 0, and continues `*crc`, which is not inverted,
// over them. It prefetches `ahead` into the second-level cache only, since the
// first level can wait for few lines at once, and this loop needs all of them.
// Each word is loaded once, so the CRC is that of the stored bytes.
//
// For a CRC, 16 bytes can be replaced by their product with x^d modulo the
// polynomial, d bits further on: both halves are multiplied and xored into the
// bytes there. The loop moves four registers of 32 bytes (ymm10 to ymm13) by
// 1024 bits. After it, the first three are moved into the last one, and its
// first half into its second. Of the 16 bytes that remain, the first 8 are
// reduced to 4, the first 4 of these 12 are moved into the others, and a
// Barrett reduction gives the CRC. In the loop all loads precede the stores,
// since a load waits for an earlier store with the same low 12 address bits.
// Only if the way is 3 or more.
//
// rxe_user_guarded_fold_wide: the same with four registers of 64 bytes, for a
// multiple of 256 bytes. Only if the way is 4. A processor multiplies as many
// registers in a given time, however wide they are.
asm(R"(
    .pushsection .text.rxe_user_guarded, "ax", @progbits
    .balign 64
    .hidden rxe_user_guarded_begin
    .hidden rxe_user_guarded_end
    .hidden rxe_user_guarded_fault
    .hidden rxe_user_guarded_copy
    .hidden rxe_user_guarded_stream
    .hidden rxe_user_guarded_fold
    .hidden rxe_user_guarded_fold_wide
    .hidden rxe_user_guarded_compare_swap
    .hidden rxe_user_guarded_fetch_add
    .globl rxe_user_guarded_begin
    .globl rxe_user_guarded_end
    .globl rxe_user_guarded_fault
    .globl rxe_user_guarded_copy
    .globl rxe_user_guarded_stream
    .globl rxe_user_guarded_fold
    .globl rxe_user_guarded_fold_wide
    .globl rxe_user_guarded_compare_swap
    .globl rxe_user_guarded_fetch_add
rxe_user_guarded_begin:
    .type rxe_user_guarded_copy, @function
rxe_user_guarded_copy:
    .cfi_startproc
    movq    %rcx, %r10
    cmpq    $8, %rdx
    jb      4f
    movq    -8(%rsi,%rdx), %r8
    leaq    -8(%rdi,%rdx), %r9
    leaq    -8(%rdx), %rcx
    cmpq    $128, %rcx
    ja      3f
1:  cmpq    $8, %rcx
    jb      2f
    movq    (%rsi), %rax
    movq    %rax, (%rdi)
    addq    $8, %rsi
    addq    $8, %rdi
    subq    $8, %rcx
    jmp     1b
2:  testq   %rcx, %rcx
    jz      9f
    movq    (%rsi), %rax
    movq    %rax, (%rdi)
    jmp     9f
3:  cmpb    $1, rxe_user_guarded_way(%rip)
    ja      11f
    jb      10f
    rep movsb
9:  movq    %r8, (%r9)
    xorl    %eax, %eax
    ret
4:  cmpq    $4, %rdx
    jb      6f
    movl    -4(%rsi,%rdx), %r8d
    leaq    -4(%rdi,%rdx), %r9
    je      5f
    movl    (%rsi), %eax
    movl    %eax, (%rdi)
5:  movl    %r8d, (%r9)
    xorl    %eax, %eax
    ret
6:  cmpq    $2, %rdx
    jb      8f
    movzwl  -2(%rsi,%rdx), %r8d
    leaq    -2(%rdi,%rdx), %r9
    je      7f
    movb    (%rsi), %al
    movb    %al, (%rdi)
7:  movw    %r8w, (%r9)
    xorl    %eax, %eax
    ret
8:  movb    (%rsi), %al
    movb    %al, (%rdi)
    xorl    %eax, %eax
    ret
10: movl    %ecx, %eax
    shrq    $3, %rcx
    rep movsq
    movl    %eax, %ecx
    andl    $7, %ecx
    jmp     2b
11: testq   %r10, %r10
    jz      14f
    prefetcht0 (%r10)
    prefetcht0 64(%r10)
    subq    $-128, %r10
14: vmovdqu (%rsi), %ymm0
    vmovdqu 32(%rsi), %ymm1
    vmovdqu 64(%rsi), %ymm2
    vmovdqu 96(%rsi), %ymm3
    vmovdqu %ymm0, (%rdi)
    vmovdqu %ymm1, 32(%rdi)
    vmovdqu %ymm2, 64(%rdi)
    vmovdqu %ymm3, 96(%rdi)
    subq    $-128, %rsi
    subq    $-128, %rdi
    addq    $-128, %rcx
    cmpq    $128, %rcx
    jae     11b
12: cmpq    $32, %rcx
    jb      13f
    vmovdqu (%rsi), %ymm0
    vmovdqu %ymm0, (%rdi)
    addq    $32, %rsi
    addq    $32, %rdi
    subq    $32, %rcx
    jmp     12b
13: vzeroupper
    jmp     1b
    .cfi_endproc
    .size rxe_user_guarded_copy, . - rxe_user_guarded_copy
    .type rxe_user_guarded_stream, @function
rxe_user_guarded_stream:  /* to, from, bytes, ahead */
    .cfi_startproc
    vmovdqu (%rsi), %ymm0
    vmovdqu 32(%rsi), %ymm1
    vmovdqu -64(%rsi,%rdx), %ymm2
    vmovdqu -32(%rsi,%rdx), %ymm3
    vmovdqu %ymm0, (%rdi)
    vmovdqu %ymm1, 32(%rdi)
    vmovdqu %ymm2, -64(%rdi,%rdx)
    vmovdqu %ymm3, -32(%rdi,%rdx)
    movq    %rdi, %rax
    negq    %rax
    andl    $63, %eax
    addq    %rax, %rsi
    addq    %rax, %rdi
    subq    %rax, %rdx
    andq    $-64, %rdx
1:  testq   %rcx, %rcx
    jz      2f
    prefetcht0 (%rcx)
    addq    $64, %rcx
2:  vmovdqu (%rsi), %ymm0
    vmovdqu 32(%rsi), %ymm1
    vmovntdq %ymm0, (%rdi)
    vmovntdq %ymm1, 32(%rdi)
    addq    $64, %rsi
    addq    $64, %rdi
    subq    $64, %rdx
    jnz     1b
    vzeroupper
    xorl    %eax, %eax
    ret
    .cfi_endproc
    .size rxe_user_guarded_stream, . - rxe_user_guarded_stream
    .type rxe_user_guarded_fold, @function
rxe_user_guarded_fold:
    .cfi_startproc
    vbroadcasti128 32(%r8), %ymm6
    vbroadcasti128 48(%r8), %ymm7
    .irp i, 0, 1, 2, 3
    vmovdqu 32*\i(%rsi), %ymm1\i
    vmovdqu %ymm1\i, 32*\i(%rdi)
    .endr
    vmovd   (%rcx), %xmm4
    vpxor   %ymm4, %ymm10, %ymm10
    jmp     2f
1:  testq   %r9, %r9
    jz      3f
    prefetcht1 (%r9)
    prefetcht1 64(%r9)
    subq    $-128, %r9
3:  .irp i, 0, 1, 2, 3
    vmovdqu 32*\i(%rsi), %ymm\i
    .endr
    .irp i, 0, 1, 2, 3
    vmovdqu %ymm\i, 32*\i(%rdi)
    vpclmulqdq $0x00, %ymm6, %ymm1\i, %ymm4
    vpclmulqdq $0x11, %ymm6, %ymm1\i, %ymm5
    vpxor   %ymm\i, %ymm4, %ymm4
    vpxor   %ymm4, %ymm5, %ymm1\i
    .endr
2:  subq    $-128, %rsi
    subq    $-128, %rdi
    addq    $-128, %rdx
    jnz     1b
    .irp i, 1, 2, 3
    vpclmulqdq $0x00, %ymm7, %ymm10, %ymm4
    vpclmulqdq $0x11, %ymm7, %ymm10, %ymm5
    vpxor   %ymm1\i, %ymm4, %ymm4
    vpxor   %ymm4, %ymm5, %ymm10
    .endr
4:  vextracti128 $1, %ymm10, %xmm0
    vmovdqu 64(%r8), %xmm7
    vpclmulqdq $0x00, %xmm7, %xmm10, %xmm4
    vpclmulqdq $0x11, %xmm7, %xmm10, %xmm5
    vpxor   %xmm4, %xmm5, %xmm5
    vpxor   %xmm5, %xmm0, %xmm0
    vmovdqu 80(%r8), %xmm6
    vmovdqu 96(%r8), %xmm7
    vpclmulqdq $0x00, %xmm6, %xmm0, %xmm1
    vpsrldq $8, %xmm0, %xmm0
    vpslldq $4, %xmm0, %xmm0
    vpxor   %xmm1, %xmm0, %xmm0
    vpclmulqdq $0x10, %xmm6, %xmm0, %xmm1
    vpxor   %xmm1, %xmm0, %xmm0
    vpclmulqdq $0x01, %xmm7, %xmm0, %xmm1
    vpsllq  $32, %xmm1, %xmm1
    vpclmulqdq $0x10, %xmm7, %xmm1, %xmm1
    vpslldq $4, %xmm1, %xmm1
    vpxor   %xmm1, %xmm0, %xmm0
    vpextrd $3, %xmm0, (%rcx)
    vzeroupper
    xorl    %eax, %eax
    ret
    .cfi_endproc
    .size rxe_user_guarded_fold, . - rxe_user_guarded_fold
    .type rxe_user_guarded_fold_wide, @function
rxe_user_guarded_fold_wide:  /* ends in the other one, at 4 */
    .cfi_startproc
    vbroadcasti32x4 (%r8), %zmm6
    vbroadcasti32x4 16(%r8), %zmm7
    .irp i, 0, 1, 2, 3
    vmovdqu64 64*\i(%rsi), %zmm1\i
    vmovdqu64 %zmm1\i, 64*\i(%rdi)
    .endr
    vmovd   (%rcx), %xmm4
    vpxorq  %zmm4, %zmm10, %zmm10
    jmp     2f
1:  testq   %r9, %r9
    jz      3f
    .irp i, 0, 1, 2, 3
    prefetcht1 64*\i(%r9)
    .endr
    addq    $256, %r9
3:  .irp i, 0, 1, 2, 3
    vmovdqu64 64*\i(%rsi), %zmm\i
    .endr
    .irp i, 0, 1, 2, 3
    vmovdqu64 %zmm\i, 64*\i(%rdi)
    vpclmulqdq $0x00, %zmm6, %zmm1\i, %zmm4
    vpclmulqdq $0x11, %zmm6, %zmm1\i, %zmm1\i
    vpternlogq $0x96, %zmm\i, %zmm4, %zmm1\i
    .endr
2:  addq    $256, %rsi
    addq    $256, %rdi
    subq    $256, %rdx
    jnz     1b
    .irp i, 1, 2, 3
    vpclmulqdq $0x00, %zmm7, %zmm10, %zmm4
    vpclmulqdq $0x11, %zmm7, %zmm10, %zmm10
    vpternlogq $0x96, %zmm1\i, %zmm4, %zmm10
    .endr
    vextracti64x4 $1, %zmm10, %ymm0
    vbroadcasti128 48(%r8), %ymm7
    vpclmulqdq $0x00, %ymm7, %ymm10, %ymm4
    vpclmulqdq $0x11, %ymm7, %ymm10, %ymm5
    vpxor   %ymm0, %ymm4, %ymm4
    vpxor   %ymm4, %ymm5, %ymm10
    jmp     4b
    .cfi_endproc
    .size rxe_user_guarded_fold_wide, . - rxe_user_guarded_fold_wide
    .type rxe_user_guarded_compare_swap, @function
rxe_user_guarded_compare_swap:  /* word, compare, swap, original */
    .cfi_startproc
    movq    %rsi, %rax
    lock cmpxchgq %rdx, (%rdi)
    movq    %rax, (%rcx)
    xorl    %eax, %eax
    ret
    .cfi_endproc
    .size rxe_user_guarded_compare_swap, . - rxe_user_guarded_compare_swap
    .type rxe_user_guarded_fetch_add, @function
rxe_user_guarded_fetch_add:  /* word, add, original */
    .cfi_startproc
    lock xaddq %rsi, (%rdi)
    movq    %rsi, (%rdx)
    xorl    %eax, %eax
    ret
    .cfi_endproc
    .size rxe_user_guarded_fetch_add, . - rxe_user_guarded_fetch_add
rxe_user_guarded_end:
    .type rxe_user_guarded_fault, @function
rxe_user_guarded_fault:
    .cfi_startproc
    cmpb    $2, rxe_user_guarded_way(%rip)
    jb      1f
    vzeroupper
1:  movl    $1, %eax
    ret
    .cfi_endproc
    .size rxe_user_guarded_fault, . - rxe_user_guarded_fault
    .popsection
)");

namespace rxe_user {
namespace assembly {
namespace {

enum Way : uint8_t {
  kByWords,
  kByBytes,
  kByVectors,
  kByVectorsThatFold,
  kByWideVectorsThatFold,
};

// Vector stores are insensitive to the alignment of the destination. Data after
// packet headers is unaligned, and `rep movsb` takes twice as long there.
// Without vectors `rep movsb` is the best where it is fast. Emulated processors
// do not report that, and need as long for a byte as for a word.
Way BestWay() {
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("pclmul") &&
      __builtin_cpu_supports("vpclmulqdq")) {
    return __builtin_cpu_supports("avx512f") ? kByWideVectorsThatFold
                                             : kByVectorsThatFold;
  }
  if (__builtin_cpu_supports("avx")) return kByVectors;
  constexpr unsigned kErms = 1 << 9;
  unsigned a, b = 0, c, d;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (b & kErms) != 0
             ? kByBytes
             : kByWords;
}

constexpr size_t kFoldStride = 128;  // bytes
constexpr size_t kWideFoldStride = 256;

// The constants of rxe_user_guarded_fold and rxe_user_guarded_fold_wide.
struct FoldConstants {
  Multipliers wide_stride{8 * kWideFoldStride};
  Multipliers wide_register{512};
  Multipliers stride{8 * kFoldStride};
  Multipliers register_width{256};
  Multipliers half{128};
  // x^96 and x^64, in the high half of a word: their products count as x times
  // themselves and need 32 bits less.
  uint64_t eight_to_four = uint64_t{wire::gf2::PowerOfX(95)} << 32;
  uint64_t four_of_twelve = uint64_t{wire::gf2::PowerOfX(63)} << 32;
  // 33 bits each: x^64 divided by the polynomial, and the polynomial.
  uint64_t quotient = wire::gf2::QuotientOfX64();
  uint64_t polynomial = uint64_t{wire::gf2::kPolynomial} << 1 | 1;
};
constexpr FoldConstants kFoldConstants;

}  // namespace
}  // namespace assembly
}  // namespace rxe_user

#pragma GCC visibility push(hidden)
extern "C" {
// Tests set this, too. Marked as used, because link-time optimization does not
// see that the assembly names it.
__attribute__((used)) uint8_t rxe_user_guarded_way =
    rxe_user::assembly::BestWay();

extern const char rxe_user_guarded_begin[];
extern const char rxe_user_guarded_end[];
extern const char rxe_user_guarded_fault[];
int rxe_user_guarded_copy(void* to, const void* from, size_t bytes,
                          const void* ahead);
int rxe_user_guarded_stream(void* to, const void* from, size_t bytes,
                            const void* ahead);
int rxe_user_guarded_fold(void* to, const void* from, size_t bytes,
                          uint32_t* crc, const void* constants,
                          const void* ahead);
int rxe_user_guarded_fold_wide(void* to, const void* from, size_t bytes,
                               uint32_t* crc, const void* constants,
                               const void* ahead);
int rxe_user_guarded_compare_swap(void* word, uint64_t compare, uint64_t swap,
                                  uint64_t* original);
int rxe_user_guarded_fetch_add(void* word, uint64_t add, uint64_t* original);
}
#pragma GCC visibility pop

namespace rxe_user {
namespace assembly {
namespace {

greg_t& ProgramCounter(ucontext_t& context) {
  return context.uc_mcontext.gregs[REG_RIP];
}

// Unused: on x86-64, other cores see stores in order.
enum Order { kAnyOrder, kLastWordLast };

// False on a fault.
bool Copy(void* to, const void* from, size_t bytes, const void* ahead, Order) {
  return rxe_user_guarded_copy(to, from, bytes, ahead) == 0;
}

// The minimum number of bytes for which non-temporal stores were measured. Of
// fewer, most are in the lines at both ends, which are written by ordinary
// stores anyway.
constexpr size_t kStreamed = 1024;

// Copies by non-temporal stores if there are enough bytes. False on a fault.
bool Stream(void* to, const void* from, size_t bytes, const void* ahead) {
  if (bytes < kStreamed || rxe_user_guarded_way < kByVectors) {
    return rxe_user_guarded_copy(to, from, bytes, ahead) == 0;
  }
  return rxe_user_guarded_stream(to, from, bytes, ahead) == 0;
}

bool FoldsWide(size_t bytes) {
  return rxe_user_guarded_way == kByWideVectorsThatFold &&
         bytes >= kWideFoldStride;
}

// The number of these bytes that Fold processes.
size_t Foldable(size_t bytes) {
  if (rxe_user_guarded_way < kByVectorsThatFold) return 0;
  return bytes - bytes % (FoldsWide(bytes) ? kWideFoldStride : kFoldStride);
}

// Copies a Foldable number of bytes and continues `*crc` over them. False on a
// fault.
bool Fold(void* to, const void* from, size_t bytes, uint32_t* crc,
          const void* ahead) {
  const auto fold =
      FoldsWide(bytes) ? rxe_user_guarded_fold_wide : rxe_user_guarded_fold;
  return fold(to, from, bytes, crc, &kFoldConstants, ahead) == 0;
}

}  // namespace
}  // namespace assembly
}  // namespace rxe_user

#endif  // RXE_USER_MEMORY_GUARDED_X86_64_H_
