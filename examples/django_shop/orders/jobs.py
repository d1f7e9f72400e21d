"""Jobs of this app; Corral imports the module `jobs` of every installed app."""

from corral.contrib.django import app
from orders.models import Order


@app.job(queue="orders", attempts=5)
def charge(order_id: int) -> None:  # a plain def runs in a thread, where Django's ORM may be used
    Order.objects.filter(pk=order_id).update(is_charged=True)
