#!/bin/sh
# Runs a command with the passwords that compose.yaml mounts as files.
set -eua
if [ -f /run/secrets/database ]; then PGPASSWORD=$(cat /run/secrets/database); fi
if [ -f /run/secrets/storage.env ]; then . /run/secrets/storage.env; fi
exec "$@"
