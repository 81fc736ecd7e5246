"""What is tried out: gone when it is settled."""

import os

FLAGS = set(filter(None, os.environ.get("IKP_EXPERIMENT", "").split(",")))
