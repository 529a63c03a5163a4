// Flow steering with mlx5's matchers and actions (mlx5dv_create_flow(3)). Not
// supported; ibv_create_flow(3) provides flow steering.
#include "verbs_api/vendor_stubs/stub.h"

POINTER(mlx5dv_create_flow_action_esp)
POINTER(mlx5dv_create_flow)
POINTER(mlx5dv_create_flow_matcher)
ERRNO(mlx5dv_destroy_flow_matcher)
POINTER(mlx5dv_create_flow_action_modify_header)
POINTER(mlx5dv_create_flow_action_packet_reformat)
POINTER(mlx5dv_create_steering_anchor)
ERRNO(mlx5dv_destroy_steering_anchor)
POINTER(__mlx5dv_create_flow)
