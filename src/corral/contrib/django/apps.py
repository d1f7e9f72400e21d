"""The configuration of the Django app."""

from django.apps import AppConfig
from django.utils.module_loading import autodiscover_modules


class CorralConfig(AppConfig):
    """Imports the module `jobs` of every installed app, which registers its handlers."""

    name = "corral.contrib.django"
    label = "corral"
    verbose_name = "Corral"

    def ready(self) -> None:
        autodiscover_modules("jobs")
