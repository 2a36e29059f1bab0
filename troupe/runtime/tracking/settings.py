"""Address and credentials of the MLflow server, under the names that MLflow's client reads."""

from pydantic_settings import BaseSettings, SettingsConfigDict


class MlflowSettings(BaseSettings):
    """MLFLOW_TRACKING_URI, MLFLOW_TRACKING_TOKEN, MLFLOW_TRACKING_USERNAME and _PASSWORD."""

    model_config = SettingsConfigDict(env_prefix="MLFLOW_TRACKING_", extra="ignore")

    uri: str = ""
    token: str = ""
    username: str = ""
    password: str = ""
