"""The list of files in docs/structure.md."""

from docs.generate.module_index import module_index


def test_a_file_stands_below_its_folder_with_the_first_paragraph_of_its_docstring(tmp_path):
    folder = tmp_path / "lead" / "backs"
    folder.mkdir(parents=True)
    (folder / "registry.py").write_text('"""The connected\nbacks.\n\nMore of them."""\n', "utf-8")
    assert "### lead/backs/" in module_index(tmp_path)
    assert "| `registry` | The connected backs. |" in module_index(tmp_path)


def test_a_folder_without_modules_is_left_out(tmp_path):
    (tmp_path / "chat").mkdir()
    (tmp_path / "chat" / "__init__.py").write_text('"""Nothing."""\n', "utf-8")
    assert "chat" not in module_index(tmp_path)
