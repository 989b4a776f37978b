# docker build -t xe-sizer . && docker run --rm --read-only -v "$PWD:/work:ro" xe-sizer check scenarios
FROM python:3.13-slim AS build
COPY pyproject.toml README.md LICENSE CHANGELOG.md /source/
COPY xe_sizer /source/xe_sizer
COPY gpu_profiles /source/gpu_profiles
COPY model_profiles /source/model_profiles
RUN python -m venv /opt/xe-sizer && /opt/xe-sizer/bin/pip install --no-cache-dir /source && /opt/xe-sizer/bin/xe-sizer --version

FROM python:3.13-slim
COPY --from=build /opt/xe-sizer /opt/xe-sizer
ENV PATH=/opt/xe-sizer/bin:$PATH PYTHONDONTWRITEBYTECODE=1
USER 65534:65534
WORKDIR /work
ENTRYPOINT ["xe-sizer"]
CMD ["--help"]
