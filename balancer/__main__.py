"""``python -m balancer`` is ``permit-balancer``."""

import sys

from balancer.commands import main

sys.exit(main())
