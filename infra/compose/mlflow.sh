#!/usr/bin/env bash
# Starts the MLflow server: its database migrated first, users by MLflow's own basic authentication, artifacts proxied
# (clients never hold the object store's keys). Everything secret comes from the environment:
#   PGHOST PGUSER PGPASSWORD             the database's place and its user
#   MLFLOW_ARTIFACTS                     where artifacts go, such as s3://mlflow, with AWS_* and MLFLOW_S3_ENDPOINT_URL
#   MLFLOW_AUTH_ADMIN_PASSWORD           of the user `admin`, made at the first start
#   MLFLOW_FLASK_SERVER_SECRET_KEY       against forged forms
set -euo pipefail
: "${PGHOST:?}" "${PGUSER:?}" "${PGPASSWORD:?}" "${MLFLOW_ARTIFACTS:?}"
: "${MLFLOW_AUTH_ADMIN_PASSWORD:?}" "${MLFLOW_FLASK_SERVER_SECRET_KEY:?}"
export MLFLOW_SERVER_ENABLE_JOB_EXECUTION=false MLFLOW_DISABLE_TELEMETRY=true
# libpq takes user and password from the environment: the addresses carry none.
place="$PGHOST:${PGPORT:-5432}"
tracking="postgresql+psycopg2://$place/${MLFLOW_DATABASE:-mlflow}"

# Without the cache every request hashes its password again, which takes most of the server's time. A changed password
# counts everywhere within a minute.
folder=$(mktemp -d)
cat >"$folder/auth.ini" <<INI
[mlflow]
default_permission = EDIT
database_uri = postgresql+psycopg2://$place/${MLFLOW_USER_DATABASE:-mlflow_users}
admin_username = admin
authorization_function = mlflow.server.auth:authenticate_request_basic_auth
grant_default_workspace_access = false
auth_cache_ttl_seconds = 60
auth_cache_max_size = 1000
INI
export MLFLOW_AUTH_CONFIG_PATH="$folder/auth.ini"

# An empty database is filled at the server's first start; an older one is brought up to this MLflow here.
if python -c 'import sqlalchemy, sys
engine = sqlalchemy.create_engine(sys.argv[1])
sys.exit("alembic_version" not in sqlalchemy.inspect(engine).get_table_names())' "$tracking"; then
  mlflow db upgrade "$tracking"
fi
exec mlflow server --app-name basic-auth \
  --host "${MLFLOW_HOST:-0.0.0.0}" --port "${MLFLOW_PORT:-5000}" --workers "${MLFLOW_WORKERS:-2}" \
  --allowed-hosts "${MLFLOW_ALLOWED_HOSTS:-localhost:*,127.0.0.1:*,mlflow:*}" \
  --backend-store-uri "$tracking" \
  --serve-artifacts --artifacts-destination "$MLFLOW_ARTIFACTS"
