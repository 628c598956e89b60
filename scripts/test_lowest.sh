#!/usr/bin/env bash
# Run the engine's tests under the lowest supported transformers (the floor in pyproject.toml).
#
#   scripts/test_lowest.sh [pytest arguments]
#
# A second environment borrows everything else (torch, numpy, pytest, …) from the first one, so only
# transformers and what it needs in other versions are fetched, from PyPI alone. PYTHON names the
# first environment's interpreter, LOWEST_ENV the folder of the second, which is kept for next time.
set -euo pipefail
cd "$(dirname "$0")/.."

PYTHON=${PYTHON:-$([ -x .venv/bin/python ] && echo .venv/bin/python || command -v python3)}
LOWEST_ENV=${LOWEST_ENV:-${TMPDIR:-/tmp}/specbench-lowest}
TESTS=(tests/test_sampling.py tests/test_rollback.py tests/test_greedy_identity.py
       tests/test_law.py tests/test_ends.py tests/test_hygiene.py tests/test_versions.py
       tests/test_transformers_engine.py)

floor=$("$PYTHON" - <<'PY'
import re
import tomllib
from pathlib import Path

wanted = tomllib.loads(Path("pyproject.toml").read_text())["project"]["dependencies"]
(entry,) = [d for d in wanted if d.startswith("transformers")]
low = re.search(r">=([\d.]+)", entry).group(1)
print(low + ".0" * (2 - low.count(".")))
PY
)

if [ ! -x "$LOWEST_ENV/bin/python" ]; then
    "$PYTHON" -m venv "$LOWEST_ENV"
    site=$("$LOWEST_ENV/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    "$PYTHON" -c 'import sysconfig; print(sysconfig.get_path("purelib"))' > "$site/zz_first.pth"
fi
"$LOWEST_ENV/bin/python" -m pip install --quiet --disable-pip-version-check "transformers==$floor" \
    2> >(grep -v -e "Can't uninstall" -e "dependency resolver" -e "requires transformers" >&2)

export PYTHONPATH=$PWD HF_HUB_OFFLINE=1
"$LOWEST_ENV/bin/python" - "$floor" <<'PY'
import sys

import huggingface_hub
import torch
import transformers

assert transformers.__version__ == sys.argv[1], transformers.__version__
print(f"transformers {transformers.__version__}, huggingface_hub {huggingface_hub.__version__},"
      f" torch {torch.__version__}")
PY
"$LOWEST_ENV/bin/python" -m pytest -p no:cacheprovider "${TESTS[@]}" "$@"
