// What `fail CALL ERRNO` can name.
#ifndef TRANSPORT_FAULTS_CALLS_H_
#define TRANSPORT_FAULTS_CALLS_H_

#include <cerrno>
#include <string_view>

namespace transport::faults {

// The calls that can fail on command, in the order of the alphabet.
inline constexpr std::string_view kCalls[] = {
    "ibv_advise_mr",
    "ibv_alloc_dm",
    "ibv_alloc_mw",
    "ibv_alloc_null_mr",
    "ibv_alloc_parent_domain",
    "ibv_alloc_pd",
    "ibv_alloc_td",
    "ibv_attach_mcast",
    "ibv_close_xrcd",
    "ibv_create_ah",
    "ibv_create_comp_channel",
    "ibv_create_counters",
    "ibv_create_cq",
    "ibv_create_cq_ex",
    "ibv_create_flow",
    "ibv_create_qp",
    "ibv_create_qp_ex",
    "ibv_create_srq",
    "ibv_create_srq_ex",
    "ibv_create_wq",
    "ibv_dealloc_mw",
    "ibv_dealloc_pd",
    "ibv_dealloc_td",
    "ibv_dereg_mr",
    "ibv_destroy_ah",
    "ibv_destroy_comp_channel",
    "ibv_destroy_counters",
    "ibv_destroy_cq",
    "ibv_destroy_flow",
    "ibv_destroy_qp",
    "ibv_destroy_srq",
    "ibv_destroy_wq",
    "ibv_detach_mcast",
    "ibv_free_dm",
    "ibv_modify_cq",
    "ibv_modify_qp",
    "ibv_modify_srq",
    "ibv_modify_wq",
    "ibv_open_device",
    "ibv_open_qp",
    "ibv_open_xrcd",
    "ibv_post_recv",
    "ibv_post_send",
    "ibv_post_srq_recv",
    "ibv_query_qp",
    "ibv_read_counters",
    "ibv_reg_dm_mr",
    "ibv_reg_mr",
    "ibv_resize_cq",
};

// The errno values that they can fail with.
struct ErrnoText {
  int number;
  std::string_view name;
};
inline constexpr ErrnoText kErrnos[] = {
    {EPERM, "EPERM"},         {ENOENT, "ENOENT"},
    {EINTR, "EINTR"},         {EIO, "EIO"},
    {ENXIO, "ENXIO"},         {EAGAIN, "EAGAIN"},
    {ENOMEM, "ENOMEM"},       {EACCES, "EACCES"},
    {EFAULT, "EFAULT"},       {EBUSY, "EBUSY"},
    {EEXIST, "EEXIST"},       {ENODEV, "ENODEV"},
    {EINVAL, "EINVAL"},       {ENFILE, "ENFILE"},
    {EMFILE, "EMFILE"},       {ENOSPC, "ENOSPC"},
    {ERANGE, "ERANGE"},       {ENOSYS, "ENOSYS"},
    {EPROTO, "EPROTO"},       {EOPNOTSUPP, "EOPNOTSUPP"},
    {ETIMEDOUT, "ETIMEDOUT"}, {EADDRNOTAVAIL, "EADDRNOTAVAIL"},
};

}  // namespace transport::faults

#endif  // TRANSPORT_FAULTS_CALLS_H_
