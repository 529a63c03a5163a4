#!/bin/sh
# rdma(8) under `rxe-user run`: installed as libexec/commands/rdma.
exec "$(dirname "$(readlink -f "$0")")/../../bin/rxe-user" rdma "$@"
