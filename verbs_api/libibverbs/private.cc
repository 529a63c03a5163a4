// The private interface between libibverbs and its providers (Debian's 44.0-2
// to 56.1-1). We do not use it. With it, Debian's provider libraries, with
// which some programs are linked, can be loaded; they find no device.
#include <cerrno>
#include <cstddef>

#define PRIVATE_SYMBOL extern "C" __attribute__((visibility("default")))
#define PRIVATE_ERRNO(name) \
  PRIVATE_SYMBOL int name() { return EOPNOTSUPP; }
#define PRIVATE_POINTER(name)   \
  PRIVATE_SYMBOL void* name() { \
    errno = EOPNOTSUPP;         \
    return nullptr;             \
  }
#define PRIVATE_VOID(name) \
  PRIVATE_SYMBOL void name() {}

PRIVATE_SYMBOL bool verbs_allow_disassociate_destroy;
bool verbs_allow_disassociate_destroy = false;

PRIVATE_SYMBOL unsigned int __ioctl_final_num_attrs() { return 0; }
PRIVATE_VOID(__verbs_log)
PRIVATE_POINTER(_verbs_init_and_alloc_context)
PRIVATE_ERRNO(execute_ioctl)
PRIVATE_ERRNO(ibv_cmd_advise_mr)
PRIVATE_ERRNO(ibv_cmd_alloc_dm)
PRIVATE_ERRNO(ibv_cmd_alloc_mw)
PRIVATE_ERRNO(ibv_cmd_alloc_pd)
PRIVATE_ERRNO(ibv_cmd_attach_mcast)
PRIVATE_ERRNO(ibv_cmd_close_xrcd)
PRIVATE_ERRNO(ibv_cmd_create_ah)
PRIVATE_ERRNO(ibv_cmd_create_counters)
PRIVATE_ERRNO(ibv_cmd_create_cq)
PRIVATE_ERRNO(ibv_cmd_create_cq_ex)
PRIVATE_ERRNO(ibv_cmd_create_cq_ex2)
PRIVATE_ERRNO(ibv_cmd_create_flow)
PRIVATE_ERRNO(ibv_cmd_create_flow_action_esp)
PRIVATE_ERRNO(ibv_cmd_create_qp)
PRIVATE_ERRNO(ibv_cmd_create_qp_ex)
PRIVATE_ERRNO(ibv_cmd_create_qp_ex2)
PRIVATE_ERRNO(ibv_cmd_create_rwq_ind_table)
PRIVATE_ERRNO(ibv_cmd_create_srq)
PRIVATE_ERRNO(ibv_cmd_create_srq_ex)
PRIVATE_ERRNO(ibv_cmd_create_wq)
PRIVATE_ERRNO(ibv_cmd_dealloc_mw)
PRIVATE_ERRNO(ibv_cmd_dealloc_pd)
PRIVATE_ERRNO(ibv_cmd_dereg_mr)
PRIVATE_ERRNO(ibv_cmd_destroy_ah)
PRIVATE_ERRNO(ibv_cmd_destroy_counters)
PRIVATE_ERRNO(ibv_cmd_destroy_cq)
PRIVATE_ERRNO(ibv_cmd_destroy_flow)
PRIVATE_ERRNO(ibv_cmd_destroy_flow_action)
PRIVATE_ERRNO(ibv_cmd_destroy_qp)
PRIVATE_ERRNO(ibv_cmd_destroy_rwq_ind_table)
PRIVATE_ERRNO(ibv_cmd_destroy_srq)
PRIVATE_ERRNO(ibv_cmd_destroy_wq)
PRIVATE_ERRNO(ibv_cmd_detach_mcast)
PRIVATE_ERRNO(ibv_cmd_free_dm)
PRIVATE_ERRNO(ibv_cmd_get_context)
PRIVATE_ERRNO(ibv_cmd_modify_cq)
PRIVATE_ERRNO(ibv_cmd_modify_flow_action_esp)
PRIVATE_ERRNO(ibv_cmd_modify_qp)
PRIVATE_ERRNO(ibv_cmd_modify_qp_ex)
PRIVATE_ERRNO(ibv_cmd_modify_srq)
PRIVATE_ERRNO(ibv_cmd_modify_wq)
PRIVATE_ERRNO(ibv_cmd_open_qp)
PRIVATE_ERRNO(ibv_cmd_open_xrcd)
PRIVATE_ERRNO(ibv_cmd_poll_cq)
PRIVATE_ERRNO(ibv_cmd_post_recv)
PRIVATE_ERRNO(ibv_cmd_post_send)
PRIVATE_ERRNO(ibv_cmd_post_srq_recv)
PRIVATE_ERRNO(ibv_cmd_query_context)
PRIVATE_ERRNO(ibv_cmd_query_device_any)
PRIVATE_ERRNO(ibv_cmd_query_mr)
PRIVATE_ERRNO(ibv_cmd_query_port)
PRIVATE_ERRNO(ibv_cmd_query_qp)
PRIVATE_ERRNO(ibv_cmd_query_srq)
PRIVATE_ERRNO(ibv_cmd_read_counters)
PRIVATE_ERRNO(ibv_cmd_reg_dm_mr)
PRIVATE_ERRNO(ibv_cmd_reg_dmabuf_mr)
PRIVATE_ERRNO(ibv_cmd_reg_mr)
PRIVATE_ERRNO(ibv_cmd_req_notify_cq)
PRIVATE_ERRNO(ibv_cmd_rereg_mr)
PRIVATE_ERRNO(ibv_cmd_resize_cq)
PRIVATE_SYMBOL int ibv_read_ibdev_sysfs_file() { return -1; }
PRIVATE_VOID(verbs_init_cq)
PRIVATE_POINTER(verbs_open_device)
PRIVATE_VOID(verbs_register_driver_34)
PRIVATE_VOID(verbs_set_ops)
PRIVATE_VOID(verbs_uninit_context)
