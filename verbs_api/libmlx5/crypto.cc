// Encryption in memory keys (mlx5dv_crypto_login(3), mlx5dv_dek_create(3)). A
// key of the card wraps the encryption keys, so they have no meaning here.
#include "verbs_api/vendor_stubs/stub.h"

ERRNO(mlx5dv_crypto_login)
ERRNO(mlx5dv_crypto_login_query_state)
ERRNO(mlx5dv_crypto_logout)
POINTER(mlx5dv_dek_create)
ERRNO(mlx5dv_dek_destroy)
ERRNO(mlx5dv_dek_query)
POINTER(mlx5dv_crypto_login_create)
ERRNO(mlx5dv_crypto_login_destroy)
ERRNO(mlx5dv_crypto_login_query)
