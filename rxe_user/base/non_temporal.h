// Orders non-temporal stores, which a release store does not.
#ifndef RXE_USER_BASE_NON_TEMPORAL_H_
#define RXE_USER_BASE_NON_TEMPORAL_H_

namespace rxe_user {

// Other processors see this thread's non-temporal stores before the call
// earlier than its stores after the call (Intel SDM vol. 1, 10.4.6.2; SFENCE).
// Thread: any.
inline void OrderNonTemporalStores() {
#if defined(__x86_64__)
  __builtin_ia32_sfence();
#endif
}

}  // namespace rxe_user

#endif  // RXE_USER_BASE_NON_TEMPORAL_H_
