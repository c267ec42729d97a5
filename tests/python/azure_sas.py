"""Prints a shared access signature that may read and list one container: `azure_sas.py CONTAINER`.

The account and its key are those that every azurite has; they are printed in its documentation.
"""

import base64
import hashlib
import hmac
import sys
from datetime import datetime, timedelta, timezone
from urllib.parse import urlencode

ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
MAY = "rl"

container = sys.argv[1]
until = (datetime.now(timezone.utc) + timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
version = "2021-08-06"
# https://learn.microsoft.com/rest/api/storageservices/create-service-sas, "Version 2020-12-06 and later":
# permissions, start, expiry, resource, identifier, IP, protocol, version, kind of resource (a container),
# snapshot, encryption scope, and five response headers.
resource = f"/blob/{ACCOUNT}/{container}"
fields = [MAY, "", until, resource, "", "", "", version, "c", "", "", "", "", "", "", ""]
signature = hmac.new(base64.b64decode(KEY), "\n".join(fields).encode(), hashlib.sha256).digest()
signed = {"sp": MAY, "se": until, "sv": version, "sr": "c", "sig": base64.b64encode(signature)}
print(urlencode(signed))
