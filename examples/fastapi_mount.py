"""A onebit model inside a FastAPI application: uvicorn fastapi_mount:app, then /onebit/ is its page."""

import os

from fastapi import FastAPI

from onebit.serve import Settings, create_app

settings = Settings(hosts=("localhost", "likes.example.org"), token=os.environ.get("ONEBIT_TOKEN"))
app = FastAPI()
app.mount("/onebit", create_app(os.environ.get("ONEBIT_MODEL", "likes.onebit"), settings=settings))
