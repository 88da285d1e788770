# Both frameworks on the processor: `docker build -t mindalign .`, then `docker run --rm -v "$PWD:/port" mindalign run`.
# With an Ascend card give the CANN image that fits its driver as BASE (untried; docs/install.md has the lines).
ARG BASE=python:3.11-slim
FROM ${BASE}

ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 ONEDNN_MAX_CPU_ISA=AVX2
COPY pyproject.toml README.md LICENSE /src/
COPY align /src/align
COPY mappings /src/mappings
COPY notebooks /src/notebooks
# torch for the processor comes from its own index; MindSpore needs numpy 1.
RUN python3 -m pip install --extra-index-url https://download.pytorch.org/whl/cpu "/src[torch,mindspore,report,watch]"

RUN useradd --create-home port
USER port
WORKDIR /port
ENTRYPOINT ["align"]
CMD ["--help"]
