"""Runs the code that docs/migration.md replaces, with two texts for each framework's function."""

import json

from before import fastapi_app, pyfunc, service
from fastapi.testclient import TestClient

TEXTS = ["one", "three"]

print("fastapi", TestClient(fastapi_app.app).post("/lengths", json={"texts": TEXTS}).json()["lengths"])
print("bentoml", json.dumps(service.Lengths().lengths(TEXTS)))
print("mlflow", json.dumps(pyfunc.Lengths().predict(None, {"texts": TEXTS})))
