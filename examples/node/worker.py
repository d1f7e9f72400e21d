"""A Corral worker for jobs added by a Node program (see producer.js).

corral worker worker:app
"""

from corral import Corral, Transient

app = Corral()


@app.job("greet", queue="greetings")
async def greet(job):
    if job.attempt == 1 and job.data["name"] == "Grace":
        raise Transient("the first attempt fails; it is retried with the options that Node set")
    return f"hello, {job.data['name']}"
