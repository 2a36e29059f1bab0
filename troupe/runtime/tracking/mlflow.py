"""Tracker ``mlflow``: an MLflow server, over its REST API 2.0.

MLflow's Python client pins protobuf below the version that Troupe's wire needs, and the six calls
that a run makes are documented and stable, so no package is needed. Addresses and credentials come
from MLFLOW_TRACKING_*; option ``tracking_uri`` overrides the address. Credentials go to the address
that they were set for and to no other: a user who may submit a job may not read them.
"""

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any, cast

import httpx

from troupe.errors import InvalidArgumentError, NotFoundError, TroupeError, UnavailableError
from troupe.runtime.hosts import check_addresses
from troupe.runtime.plain_answers import PLAIN, read_plain
from troupe.runtime.tracking.settings import MlflowSettings
from troupe.runtime.tracking.tracker import TrackedRun
from troupe.spec import params

_BATCH = 100
"""Parameters in one log-batch call: the server's limit."""
_LONGEST_PARAM = 500
_STATUS = {"": "RUNNING", "succeeded": "FINISHED", "failed": "FAILED", "cancelled": "KILLED"}
_TAG = "troupe.unique_id"
_MAX_ANSWER_BYTES = 1 << 20
"""Largest answer that is read; those of the six calls are a few kilobytes."""


class MlflowTracker:
    """One MLflow run, found again by its tag when the job is resumed."""

    class Params(params.Params):
        """Options: the server's address, where it is not the operator's."""

        tracking_uri: str = ""

    def __init__(self, run: TrackedRun) -> None:
        options = self.Params.model_validate(run.options)
        settings = MlflowSettings()
        uri = options.tracking_uri or settings.uri
        if not uri.startswith(("http://", "https://")):
            raise InvalidArgumentError(
                f"tracker 'mlflow' needs the address of a server, not '{uri}'; set "
                "MLFLOW_TRACKING_URI or the option tracking_uri to http(s)://host:port"
            )
        is_configured_uri = uri.rstrip("/") == settings.uri.rstrip("/")
        if not is_configured_uri:
            _check_strange(uri)
        self._http = _client(uri, settings, is_configured_uri=is_configured_uri)
        experiment = self._experiment(run.project or "troupe")
        tag = run.unique_id or run.job_id
        run_id = self._find(experiment, tag)
        self._run_id = run_id or self._create(experiment, run.job_id, tag)
        self._unsent: Mapping[str, Any] = {} if run_id else run.config

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """A point for each value; after the first ones, the spec of a run that is new.

        Where the server refuses the spec, the run is there and goes on: an error in ``__init__``
        would begin another run at each line.
        """
        now = int(time.time() * 1000)
        points = [
            {"key": name, "value": value, "timestamp": now, "step": step}
            for name, value in values.items()
        ]
        self._post("runs/log-batch", {"run_id": self._run_id, "metrics": points})
        config, self._unsent = self._unsent, {}
        self._params(config)

    def close(self, state: str) -> None:
        """Give the run its end state."""
        ended = {"end_time": int(time.time() * 1000)} if state else {}
        body = {"run_id": self._run_id, "status": _STATUS.get(state, "FAILED"), **ended}
        try:
            self._post("runs/update", body)
        finally:
            self._http.close()

    def _experiment(self, name: str) -> str:
        params = {"experiment_name": name}
        try:
            found = self._answer("GET", "experiments/get-by-name", params=params)
        except NotFoundError:
            return str(self._post("experiments/create", {"name": name})["experiment_id"])
        return str(found["experiment"]["experiment_id"])

    def _find(self, experiment: str, tag: str) -> str | None:
        body = {"experiment_ids": [experiment], "filter": f"tags.`{_TAG}` = '{tag}'"}
        runs = cast("Sequence[Any]", self._post("runs/search", body).get("runs", ()))
        return str(runs[0]["info"]["run_id"]) if runs else None

    def _create(self, experiment: str, job_id: str, tag: str) -> str:
        body = {
            "experiment_id": experiment,
            "run_name": job_id,
            "start_time": int(time.time() * 1000),
            "tags": [{"key": _TAG, "value": tag}, {"key": "troupe.job_id", "value": job_id}],
        }
        return str(self._post("runs/create", body)["run"]["info"]["run_id"])

    def _params(self, config: Mapping[str, Any]) -> None:
        params = [{"key": k, "value": v[:_LONGEST_PARAM]} for k, v in _flat(config).items()]
        for start in range(0, len(params), _BATCH):
            part = params[start : start + _BATCH]
            self._post("runs/log-batch", {"run_id": self._run_id, "params": part})

    def _post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        return self._answer("POST", path, json=body)

    def _answer(self, method: str, path: str, **sent: Any) -> dict[str, Any]:
        with self._http.stream(method, path, **sent) as answer:
            return _checked(answer)


def _check_strange(uri: str) -> None:
    """Raise InvalidArgumentError for an address of a spec that can't be an MLflow server's.

    A query or fragment would swallow the path of the API, so that any other path is asked.
    """
    if "?" in uri or "#" in uri:
        raise InvalidArgumentError(
            "the option tracking_uri of tracker 'mlflow' has a query or a fragment; give "
            "http(s)://host:port and a path at most"
        )
    check_addresses(uri)


def _client(uri: str, settings: MlflowSettings, *, is_configured_uri: bool) -> httpx.Client:
    headers = dict(PLAIN)
    if is_configured_uri and settings.token:
        headers["Authorization"] = f"Bearer {settings.token}"
    auth = (
        (settings.username, settings.password) if is_configured_uri and settings.username else None
    )
    base = f"{uri.rstrip('/')}/api/2.0/mlflow/"
    return httpx.Client(base_url=base, headers=headers, auth=auth, timeout=10.0)


def _checked(answer: httpx.Response) -> dict[str, Any]:
    # The body stays here: the address may be a stranger's choice, and errors become events.
    path = answer.request.url.path
    if answer.is_error:
        error: type[TroupeError] = UnavailableError
        if answer.status_code == 404:
            error = NotFoundError
        raise error(f"MLflow answered {answer.status_code} at {path}; MLflow's log says why")
    advice = "no call of a run has so long an answer: look whether the address is of MLflow's API"
    raw = read_plain(answer, f"MLflow at {path}", _MAX_ANSWER_BYTES, advice)
    return cast("dict[str, Any]", json.loads(raw))


def _flat(value: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Leaves of a nested mapping by dotted path."""
    leaves: dict[str, str] = {}
    for name, inner in value.items():
        if isinstance(inner, Mapping) and inner:
            leaves |= _flat(cast("Mapping[str, Any]", inner), f"{prefix}{name}.")
        elif inner is not None:
            leaves[f"{prefix}{name}"] = str(inner)
    return leaves
