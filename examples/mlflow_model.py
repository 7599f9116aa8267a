"""A onebit model as an MLflow pyfunc; its file stays a file, and nothing of it is pickled.

mlflow.pyfunc.save_model("served", python_model="mlflow_model.py", artifacts={"model": "likes.onebit"})
"""

import mlflow

import onebit


class Completer(mlflow.pyfunc.PythonModel):
    """Predicts the probability of yes of pairs of ids: a frame with the row ids first."""

    def load_context(self, context):
        self.model = onebit.load(context.artifacts["model"])

    def predict(self, context, model_input, params=None):
        return self.model.predict_proba(model_input)[:, 1]


mlflow.models.set_model(Completer())
