-- MLflow's own users live beside its runs, in a database of their own.
CREATE DATABASE mlflow_users;
