"""Two views: one adds a job when its transaction is committed, the other shows what became of it."""

from django.db import transaction
from django.http import HttpRequest, JsonResponse
from django.shortcuts import get_object_or_404
from django.urls import path
from django.views.decorators.csrf import csrf_exempt
from orders.jobs import charge
from orders.models import Order

from corral.contrib.django import add_on_commit


@csrf_exempt
def create(request: HttpRequest) -> JsonResponse:
    with transaction.atomic():
        order = Order.objects.create(item=request.POST["item"])
        add_on_commit(charge.call(order.pk))  # a worker never sees an order that is not there yet
    return JsonResponse({"id": order.pk}, status=202)


def show(request: HttpRequest, order_id: int) -> JsonResponse:
    order = get_object_or_404(Order, pk=order_id)
    return JsonResponse({"id": order.pk, "item": order.item, "is_charged": order.is_charged})


urlpatterns = [path("", create), path("<int:order_id>", show)]
