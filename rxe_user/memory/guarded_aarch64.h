// The guarded accesses of guarded_copy.cc in assembly for aarch64. Only that
// file includes this one.
#ifndef RXE_USER_MEMORY_GUARDED_AARCH64_H_
#define RXE_USER_MEMORY_GUARDED_AARCH64_H_

#include <asm/hwcap.h>
#include <sys/auxv.h>
#include <ucontext.h>

#include <cstddef>
#include <cstdint>

#include "rxe_user/memory/fold_multipliers.h"

// All return 0, or 1 from rxe_user_guarded_fault when an access faults. They
// use no stack and call nothing, so that the handler has nothing to unwind.
//
// rxe_user_guarded_copy(to, from, bytes >= 1, ahead, last word last): the last
// word is loaded first and stored last. Other cores may see stores in any order
// here: `dmb ishst` before the last store orders all earlier ones, also those
// of earlier calls, before it. Only an aligned store is seen as a whole. An
// unaligned last word is stored in parts, with the barrier before the last
// aligned part: four bytes or one. Other stores may overlap the last word as on
// x86-64: never its last byte, nor its last four bytes if the number of bytes
// is a multiple of four.
//
// rxe_user_guarded_fold(to, from, bytes, crc, constants, ahead): copies a
// multiple of 64 bytes, not 0, and continues `*crc`, which is not inverted,
// over them. Each word is loaded once, so the CRC is that of the stored bytes.
// Four registers of 16 bytes (v20 to v23) move by 512 bits at a time, then each
// into the next. The CRC instructions process the remaining 16 bytes. Only if
// rxe_user_guarded_way is 1.
//
// The atomic operations also store if the comparison fails, so that memory
// without write permission faults in both cases. With the barrier after them
// they order all accesses in both directions.
asm(R"(
    .pushsection .text.rxe_user_guarded, "ax", %progbits
    .arch armv8-a+crc+crypto
    .balign 64
    .hidden rxe_user_guarded_begin
    .hidden rxe_user_guarded_end
    .hidden rxe_user_guarded_fault
    .hidden rxe_user_guarded_copy
    .hidden rxe_user_guarded_fold
    .hidden rxe_user_guarded_compare_swap
    .hidden rxe_user_guarded_fetch_add
    .globl rxe_user_guarded_begin
    .globl rxe_user_guarded_end
    .globl rxe_user_guarded_fault
    .globl rxe_user_guarded_copy
    .globl rxe_user_guarded_fold
    .globl rxe_user_guarded_compare_swap
    .globl rxe_user_guarded_fetch_add
rxe_user_guarded_begin:
    .type rxe_user_guarded_copy, %function
rxe_user_guarded_copy:
    .cfi_startproc
    cmp     x2, #8
    b.lo    5f
    sub     x5, x2, #8
    ldr     x6, [x1, x5]
    add     x7, x0, x5
    cmp     x5, #64
    b.lo    3f
1:  cbz     x3, 2f
    prfm    pldl1keep, [x3]
    add     x3, x3, #64
2:  ldp     x8, x9, [x1]
    ldp     x10, x11, [x1, #16]
    ldp     x12, x13, [x1, #32]
    ldp     x14, x15, [x1, #48]
    stp     x8, x9, [x0]
    stp     x10, x11, [x0, #16]
    stp     x12, x13, [x0, #32]
    stp     x14, x15, [x0, #48]
    add     x1, x1, #64
    add     x0, x0, #64
    sub     x5, x5, #64
    cmp     x5, #64
    b.hs    1b
3:  tbz     x5, #5, 31f
    ldp     x8, x9, [x1], #16
    ldp     x10, x11, [x1], #16
    stp     x8, x9, [x0], #16
    stp     x10, x11, [x0], #16
31: tbz     x5, #4, 32f
    ldp     x8, x9, [x1], #16
    stp     x8, x9, [x0], #16
32: tbz     x5, #3, 33f
    ldr     x8, [x1], #8
    str     x8, [x0], #8
33: tst     x5, #7
    b.eq    4f
    ldr     x8, [x1]
    str     x8, [x0]
4:  cbz     w4, 43f
    tst     x7, #7
    b.ne    41f
    dmb     ishst
43: str     x6, [x7]
    mov     w0, #0
    ret
41: str     w6, [x7], #4
    lsr     x6, x6, #32
    tst     x7, #3
    b.ne    42f
    dmb     ishst
    str     w6, [x7]
    mov     w0, #0
    ret
42: strh    w6, [x7]
    lsr     w8, w6, #16
    strb    w8, [x7, #2]
    lsr     w6, w6, #24
    dmb     ishst
    strb    w6, [x7, #3]
    mov     w0, #0
    ret
5:  tbz     x2, #2, 6f
    sub     x5, x2, #4
    ldr     w6, [x1, x5]
    add     x7, x0, x5
    cbz     x5, 51f
    ldr     w8, [x1]
    str     w8, [x0]
51: cbz     w4, 52f
    tst     x7, #3
    b.ne    42b
    dmb     ishst
52: str     w6, [x7]
    mov     w0, #0
    ret
6:  tbz     x2, #1, 7f
    sub     x5, x2, #2
    ldrh    w6, [x1, x5]
    add     x7, x0, x5
    cbz     x5, 61f
    ldrb    w8, [x1]
    strb    w8, [x0]
61: cbz     w4, 63f
    tbnz    w7, #0, 62f
    dmb     ishst
63: strh    w6, [x7]
    mov     w0, #0
    ret
62: strb    w6, [x7]
    lsr     w6, w6, #8
    dmb     ishst
    strb    w6, [x7, #1]
    mov     w0, #0
    ret
7:  ldrb    w6, [x1]
    cbz     w4, 71f
    dmb     ishst
71: strb    w6, [x0]
    mov     w0, #0
    ret
    .cfi_endproc
    .size rxe_user_guarded_copy, . - rxe_user_guarded_copy
    .type rxe_user_guarded_fold, %function
rxe_user_guarded_fold:
    .cfi_startproc
    ldp     q30, q31, [x4]
    ldp     q20, q21, [x1]
    ldp     q22, q23, [x1, #32]
    ldr     s4, [x3]
    stp     q20, q21, [x0]
    stp     q22, q23, [x0, #32]
    eor     v20.16b, v20.16b, v4.16b
    b       3f
1:  cbz     x5, 2f
    prfm    pldl2keep, [x5]
    add     x5, x5, #64
2:  ldp     q0, q1, [x1]
    ldp     q2, q3, [x1, #32]
    stp     q0, q1, [x0]
    stp     q2, q3, [x0, #32]
    .irp i, 0, 1, 2, 3
    pmull   v4.1q, v2\i\().1d, v30.1d
    pmull2  v5.1q, v2\i\().2d, v30.2d
    eor     v4.16b, v4.16b, v\i\().16b
    eor     v2\i\().16b, v4.16b, v5.16b
    .endr
3:  add     x1, x1, #64
    add     x0, x0, #64
    subs    x2, x2, #64
    b.ne    1b
    .irp i, 1, 2, 3
    pmull   v4.1q, v20.1d, v31.1d
    pmull2  v5.1q, v20.2d, v31.2d
    eor     v4.16b, v4.16b, v2\i\().16b
    eor     v20.16b, v4.16b, v5.16b
    .endr
    mov     x6, v20.d[0]
    mov     x7, v20.d[1]
    crc32x  w6, wzr, x6
    crc32x  w6, w6, x7
    str     w6, [x3]
    mov     w0, #0
    ret
    .cfi_endproc
    .size rxe_user_guarded_fold, . - rxe_user_guarded_fold
    .type rxe_user_guarded_compare_swap, %function
rxe_user_guarded_compare_swap:  /* word, compare, swap, original */
    .cfi_startproc
1:  ldaxr   x4, [x0]
    cmp     x4, x1
    csel    x5, x2, x4, eq
    stlxr   w6, x5, [x0]
    cbnz    w6, 1b
    dmb     ish
    str     x4, [x3]
    mov     w0, #0
    ret
    .cfi_endproc
    .size rxe_user_guarded_compare_swap, . - rxe_user_guarded_compare_swap
    .type rxe_user_guarded_fetch_add, %function
rxe_user_guarded_fetch_add:  /* word, add, original */
    .cfi_startproc
1:  ldaxr   x4, [x0]
    add     x5, x4, x1
    stlxr   w6, x5, [x0]
    cbnz    w6, 1b
    dmb     ish
    str     x4, [x2]
    mov     w0, #0
    ret
    .cfi_endproc
    .size rxe_user_guarded_fetch_add, . - rxe_user_guarded_fetch_add
rxe_user_guarded_end:
    .type rxe_user_guarded_fault, %function
rxe_user_guarded_fault:
    .cfi_startproc
    mov     w0, #1
    ret
    .cfi_endproc
    .size rxe_user_guarded_fault, . - rxe_user_guarded_fault
    .popsection
)");

namespace rxe_user {
namespace assembly {
namespace {

enum Way : uint8_t { kByWords, kByWordsThatFold };

Way BestWay() {
  constexpr unsigned long kWanted = HWCAP_PMULL | HWCAP_CRC32;
  return (getauxval(AT_HWCAP) & kWanted) == kWanted ? kByWordsThatFold
                                                    : kByWords;
}

constexpr size_t kFoldStride = 64;  // bytes

// The constants of rxe_user_guarded_fold.
struct FoldConstants {
  Multipliers stride{8 * kFoldStride};
  Multipliers register_width{128};
};
constexpr FoldConstants kFoldConstants;

}  // namespace
}  // namespace assembly
}  // namespace rxe_user

#pragma GCC visibility push(hidden)
extern "C" {
// Tests set this, too.
__attribute__((used)) uint8_t rxe_user_guarded_way =
    rxe_user::assembly::BestWay();

extern const char rxe_user_guarded_begin[];
extern const char rxe_user_guarded_end[];
extern const char rxe_user_guarded_fault[];
int rxe_user_guarded_copy(void* to, const void* from, size_t bytes,
                          const void* ahead, int last_word_last);
int rxe_user_guarded_fold(void* to, const void* from, size_t bytes,
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

auto& ProgramCounter(ucontext_t& context) { return context.uc_mcontext.pc; }

enum Order { kAnyOrder, kLastWordLast };

// False on a fault.
bool Copy(void* to, const void* from, size_t bytes, const void* ahead,
          Order order) {
  return rxe_user_guarded_copy(to, from, bytes, ahead, order) == 0;
}

// Not by non-temporal stores (STNP): not measured on a processor.
bool Stream(void* to, const void* from, size_t bytes, const void* ahead) {
  return Copy(to, from, bytes, ahead, kAnyOrder);
}

// The number of these bytes that Fold processes.
size_t Foldable(size_t bytes) {
  return rxe_user_guarded_way == kByWordsThatFold ? bytes - bytes % kFoldStride
                                                  : 0;
}

// Copies a Foldable number of bytes and continues `*crc` over them. False on a
// fault.
bool Fold(void* to, const void* from, size_t bytes, uint32_t* crc,
          const void* ahead) {
  return rxe_user_guarded_fold(to, from, bytes, crc, &kFoldConstants, ahead) ==
         0;
}

}  // namespace
}  // namespace assembly
}  // namespace rxe_user

#endif  // RXE_USER_MEMORY_GUARDED_AARCH64_H_
