"""The MkDocs hook that adds the reference pages, which are generated from the code, to the site."""

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from tests.docs.reference import pages, schemas


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add each generated page and each JSON Schema."""
    for path, text in {**pages(), **schemas()}.items():
        files.append(File.generated(config, path, content=text))
    return files
