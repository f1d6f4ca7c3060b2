"""Settings: the only reader of the environment.

Decides what a legal setting is and how a wrong one is told: one line with the setting, the fault
and an example. Knows nothing of what the settings are for.
"""

from __future__ import annotations

from typing import Final

from pydantic import Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from balancer.errors import SettingsError

EXAMPLES: Final = {"postgres_dsn": "postgresql://permit:secret@localhost/permit"}


class DatabaseSettings(BaseSettings):
    """Where the database is."""

    model_config = SettingsConfigDict(env_prefix="PERMIT_", extra="ignore")

    postgres_dsn: SecretStr = Field(min_length=1)


def load_database_settings() -> DatabaseSettings:
    """Return the settings in the environment.

    Raises:
        SettingsError: one line naming the setting, the fault and an example.
    """
    try:
        return DatabaseSettings()
    except ValidationError as error:
        fault = error.errors()[0]
        name = str(fault["loc"][0])
        raise SettingsError(
            f"PERMIT_{name.upper()}: {fault['msg']}; for example {EXAMPLES[name]}"
        ) from None
