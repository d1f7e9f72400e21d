"""A Django project with one app, `orders`, whose jobs stand in orders/jobs.py.

python manage.py migrate
python manage.py runserver                 # in one terminal
python manage.py corral_worker             # in another
curl -d item=milk localhost:8000/
curl localhost:8000/1
"""

import os
import sys

from django.core.management import execute_from_command_line

if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "settings")
    execute_from_command_line(sys.argv)
