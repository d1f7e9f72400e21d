"""A Corral worker for jobs that a Node program adds (see producer.js).

corral worker worker:app
"""

from corral import Corral, Transient

app = Corral()


@app.job("greet", queue="greetings")
async def greet(job):
    if job.attempt == 1 and job.data["name"] == "Grace":
        raise Transient("the first try of this one fails; Node's own options say what follows")
    return f"hello, {job.data['name']}"
