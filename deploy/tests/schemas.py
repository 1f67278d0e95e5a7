"""Makes a folder of schemas for kubeconform: python3 schemas.py WHEEL CRDS FOLDER

WHEEL is the package kubernetes-validate, which contains the schemas of Kubernetes. CRDS is a folder
of custom resource definitions.
"""

import json
import sys
import zipfile
from pathlib import Path

import yaml

VERSION = "v1.33.0-local-strict"


def closed(schema):
    """Forbid unknown properties in a custom resource's schema."""
    if isinstance(schema, dict):
        if "properties" in schema and not schema.get("x-kubernetes-preserve-unknown-fields"):
            schema.setdefault("additionalProperties", False)
        for value in schema.values():
            closed(value)
    return schema


wheel, definitions, folder = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
folder.mkdir(parents=True, exist_ok=True)
with zipfile.ZipFile(wheel) as archive:
    for name in archive.namelist():
        if f"/{VERSION}/" in name and name.endswith(".json"):
            schema = json.loads(archive.read(name))
            schema.pop("$id", None)
            text = json.dumps(schema).replace('"/api/_definitions.json', '"_definitions.json')
            (folder / Path(name).name).write_text(text)
for path in definitions.glob("*.yaml"):
    for definition in yaml.safe_load_all(path.read_text()):
        if not definition or definition.get("kind") != "CustomResourceDefinition":
            continue
        spec = definition["spec"]
        for version in spec["versions"]:
            schema = closed(version["schema"]["openAPIV3Schema"])
            schema["properties"].update(apiVersion={"type": "string"}, kind={"type": "string"}, metadata={"type": "object"})
            group = spec["group"].split(".")[0]
            name = f"{spec['names']['kind'].lower()}-{group}-{version['name']}.json"
            (folder / name).write_text(json.dumps(schema))
print(sum(1 for _ in folder.iterdir()), "schemas")
