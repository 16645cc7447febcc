# The images of the harness. Both need the wheel in dist/ (uv build), install other packages in the versions of uv.lock, and run as a
# user without rights, on a read-only root with a writable /tmp:
#
#   docker build --tag compaction-harness .                             every command; simulated targets
#   docker build --target guard --tag compaction-harness-guard .       `harness guard` and `harness watch --checks-only`: no Java, no Spark
#   docker run --rm --read-only --tmpfs /tmp:exec --volume /copies:/copies:ro compaction-harness \
#       audit disk --topic 'orders-*' --broker 1=/copies/broker-1 --broker 2=/copies/broker-2
FROM debian:trixie-slim@sha256:3a39a0592364683e6bab97937b72cad5a8fa6dcbbee90edb3bb48c7f8e94f258 AS debian
RUN useradd --uid 10001 --home-dir /tmp --no-create-home harness

FROM debian AS build
LABEL compaction-harness.stage=build
RUN apt-get update && apt-get install --yes --no-install-recommends python3-venv
COPY .ci/uv.txt pyproject.toml uv.lock /project/
WORKDIR /project
RUN python3 -m venv /uv && /uv/bin/pip install --no-cache-dir --require-hashes --requirement uv.txt
COPY dist/*.whl /wheel/
ENV UV_NO_CACHE=1 UV_PYTHON=/usr/bin/python3 UV_PYTHON_DOWNLOADS=never

FROM build AS build-guard
RUN UV_PROJECT_ENVIRONMENT=/opt/harness /uv/bin/uv sync --locked --only-group guard \
    && /uv/bin/uv pip install --python /opt/harness --no-deps /wheel/*.whl

FROM debian AS guard
RUN apt-get update \
    && apt-get upgrade --yes \
    && apt-get install --yes --no-install-recommends python3 \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt/*
COPY --from=build-guard /opt/harness /opt/harness
ENV PATH=/opt/harness/bin:$PATH PYTHONDONTWRITEBYTECODE=1
USER 10001
WORKDIR /tmp
ENTRYPOINT ["harness"]

FROM build AS build-complete
RUN UV_PROJECT_ENVIRONMENT=/opt/harness /uv/bin/uv sync --locked --no-install-project \
    && /uv/bin/uv pip install --python /opt/harness --no-deps /wheel/*.whl

FROM debian AS complete
RUN apt-get update \
    && apt-get upgrade --yes \
    && apt-get install --yes --no-install-recommends openjdk-21-jre-headless python3 \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt/*
COPY --from=build-complete /opt/harness /opt/harness
# Nothing outside of /tmp is written: compiled code and class archives are kept there for as long as the container is.
ENV PATH=/opt/harness/bin:$PATH COMPACTION_HARNESS_CACHE=/tmp/compaction-harness COMPACTION_HARNESS_BACKGROUND=0
USER 10001
WORKDIR /tmp
ENTRYPOINT ["harness"]
