#!/usr/bin/env python3
"""Validates what rxe-user trace --sqlog writes.

    validate_sqlog.py SCHEMA FILE

Prints the number of records and the names of their events; exit status 1 and
the first error if a record does not fit the schema (docs/sqlog.schema.json).
Needs python3-jsonschema.
"""

import collections
import json
import sys

import jsonschema

SEPARATOR = b"\x1e"  # RFC 7464


def main():
    with open(sys.argv[1]) as file:
        schema = json.load(file)
    kind = jsonschema.validators.validator_for(schema)
    kind.check_schema(schema)
    validator = kind(schema)
    with open(sys.argv[2], "rb") as file:
        text = file.read()
    if not text.startswith(SEPARATOR):
        sys.exit("the file does not begin with a record separator")
    names = collections.Counter()
    for number, record in enumerate(text.split(SEPARATOR)[1:]):
        if not record.endswith(b"\n"):
            sys.exit(f"record {number} does not end with a new line")
        value = json.loads(record)
        error = jsonschema.exceptions.best_match(validator.iter_errors(value))
        if error:
            sys.exit(f"record {number}: {error.message}\n{record.decode()}")
        if ("trace" in value) != (number == 0):
            sys.exit(f"record {number}: the first one describes the file")
        names[value.get("name", "file")] += 1
    for name, count in sorted(names.items()):
        print(name, count)


if __name__ == "__main__":
    main()
