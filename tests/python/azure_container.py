"""Makes a container on azurite: `azure_container.py URL CONTAINER`. URL ends with the account's name.

The account and its key are those that every azurite has; they are printed in its documentation.
"""

import base64
import email.utils
import hashlib
import hmac
import sys
import urllib.request

ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="

url, container = sys.argv[1:]
date = email.utils.formatdate(usegmt=True)
version = "2021-08-06"
# https://learn.microsoft.com/rest/api/storageservices/authorize-with-shared-key
headers = f"x-ms-date:{date}\nx-ms-version:{version}\n"
resource = f"/{ACCOUNT}/{ACCOUNT}/{container}\nrestype:container"
to_sign = "PUT" + "\n" * 12 + headers + resource
signature = hmac.new(base64.b64decode(KEY), to_sign.encode(), hashlib.sha256).digest()
request = urllib.request.Request(f"{url}/{container}?restype=container", method="PUT", data=b"")
request.add_header("x-ms-date", date)
request.add_header("x-ms-version", version)
request.add_header("Content-Type", "")
authorization = f"SharedKey {ACCOUNT}:{base64.b64encode(signature).decode()}"
request.add_header("Authorization", authorization)
assert urllib.request.urlopen(request).status == 201
