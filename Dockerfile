# The harness as an image: audits of mounted copies and of live clusters, checks of run folders, simulated targets. Needs the
# wheel in dist/ (python -m build). It runs as a user without rights, on a read-only root with a writable /tmp:
#
#   docker build --tag compaction-harness .
#   docker run --rm --read-only --tmpfs /tmp:exec --volume /copies:/copies:ro compaction-harness \
#       audit disk --topic 'orders-*' --broker 1=/copies/broker-1 --broker 2=/copies/broker-2
ARG BASE=debian:bookworm-slim

FROM ${BASE} AS build
LABEL compaction-harness.stage=build
RUN apt-get update && apt-get install --yes --no-install-recommends python3-venv
COPY dist/*.whl /tmp/
RUN python3 -m venv /opt/harness && /opt/harness/bin/pip install --no-cache-dir /tmp/*.whl

FROM ${BASE}
RUN apt-get update \
    && apt-get install --yes --no-install-recommends openjdk-17-jre-headless python3 \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 10001 --home-dir /tmp --no-create-home harness
COPY --from=build /opt/harness /opt/harness
# Nothing outside of /tmp is written: compiled code and class archives are kept there for as long as the container is.
ENV PATH=/opt/harness/bin:$PATH COMPACTION_HARNESS_CACHE=/tmp/compaction-harness COMPACTION_HARNESS_BACKGROUND=0
USER harness
WORKDIR /tmp
ENTRYPOINT ["harness"]
