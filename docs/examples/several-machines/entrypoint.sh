#!/bin/sh
# Runs a command with the passwords that compose.yaml mounts as files.
set -eua
PGPASSWORD=$(cat /run/secrets/database)
. /run/secrets/storage.env
exec "$@"
