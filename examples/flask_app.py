"""A Flask app whose handlers have its application context.

flask --app flask_app:flask run                  # in one terminal
flask --app flask_app:flask corral-worker        # in another
curl -X POST localhost:5000/orders/17
curl localhost:5000/orders/17
"""

from flask import Flask, current_app, jsonify

from corral import Corral
from corral.contrib.flask import init_app

app = Corral()
flask = Flask(__name__)
flask.config["SHOP"] = "Ada's"
init_app(flask, app)


@app.job(queue="orders")
def charge(order_id: int) -> str:
    return f"{current_app.config['SHOP']} order {order_id} is charged"


@flask.post("/orders/<int:order_id>")
def create(order_id):
    handle = app.sync(charge.options(id=f"order-{order_id}").add(order_id))
    return jsonify(id=handle.id), 202


@flask.get("/orders/<int:order_id>")
def show(order_id):
    job = app.sync(charge.queue.job(f"order-{order_id}"))
    return (jsonify(state=job.state, result=job.result), 200) if job else (jsonify(), 404)
