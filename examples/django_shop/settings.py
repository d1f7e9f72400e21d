"""The settings that matter here are the last two."""

import os
from pathlib import Path

SECRET_KEY = "only for this example"
DEBUG = True
ALLOWED_HOSTS = ["localhost", "127.0.0.1"]
ROOT_URLCONF = "urls"
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": os.environ.get("SHOP_DATABASE", Path(__file__).with_name("shop.sqlite3")),
    }
}
INSTALLED_APPS = ["orders", "corral.contrib.django"]
CORRAL = {"url": os.environ.get("REDIS_URL")}
