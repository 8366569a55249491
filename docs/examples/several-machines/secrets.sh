#!/bin/sh
# Writes the folder `secrets` with new passwords. Only its owner may enter it; each container sees single files of it.
set -eu
cd "$(dirname "$0")"
umask 022
mkdir -m 700 secrets
cd secrets

new() {
    od -An -N16 -tx1 /dev/urandom | tr -d ' \n'
}

new > admin_password
new > owner_password
new > user_password
new > rest_password
key=$(new)

cat > passwords.sql <<END
ALTER ROLE streams_owner PASSWORD '$(cat owner_password)';
ALTER ROLE streams_user PASSWORD '$(cat user_password)';
END
cat > storage.env <<END
AWS_ACCESS_KEY_ID=eventproc
AWS_SECRET_ACCESS_KEY=$key
END
cat > storage.json <<END
{"identities": [{"name": "eventproc", "actions": ["Admin", "Read", "Write", "List"],
  "credentials": [{"accessKey": "eventproc", "secretKey": "$key"}]}]}
END
