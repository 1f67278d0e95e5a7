package skeleton

import (
	"bytes"
	"embed"
	"fmt"
	"go/format"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"text/template"
)

// templates has a folder for each kind.
//
//go:embed all:templates
var templates embed.FS

// write fills the templates of a folder with data, and renames the result to directory/name; it
// creates a missing directory. It returns the written files, relative to that.
func write(folder string, data any, directory, name string) (files []string, err error) {
	destination := filepath.Join(directory, name)
	if _, err := os.Lstat(destination); err == nil {
		return nil, fmt.Errorf("%s already exists and was not changed: choose another name, or remove it", destination)
	}
	if err := os.MkdirAll(directory, 0o755); err != nil {
		return nil, fmt.Errorf("%w: name another directory with --directory", err)
	}
	made, err := os.MkdirTemp(directory, "."+name+"-*")
	if err != nil {
		return nil, fmt.Errorf("%w: name another directory with --directory", err)
	}
	defer os.RemoveAll(made) // no effect after the rename
	root := path.Join("templates", folder)
	err = fs.WalkDir(templates, root, func(source string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		file := strings.TrimSuffix(strings.TrimPrefix(source, root+"/"), ".tmpl")
		file = strings.ReplaceAll(file, "NAME", name)
		if file == "gitignore" { // as .gitignore it would affect the templates' own repository
			file = ".gitignore"
		}
		files = append(files, file)
		text, err := fill(source, data)
		if err != nil {
			return err
		}
		to := filepath.Join(made, filepath.FromSlash(file))
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		return os.WriteFile(to, text, mode(file))
	})
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(made, 0o755); err != nil {
		return nil, err
	}
	// A directory created meanwhile is replaced only if it is empty.
	return files, os.Rename(made, destination)
}

// fill executes one template.
func fill(source string, data any) ([]byte, error) {
	text, err := templates.ReadFile(source)
	if err != nil {
		return nil, err
	}
	t, err := template.New(path.Base(source)).Option("missingkey=error").Parse(string(text))
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	if err := t.Execute(&out, data); err != nil {
		return nil, err
	}
	if strings.HasSuffix(source, ".go.tmpl") {
		return format.Source(out.Bytes())
	}
	return out.Bytes(), nil
}

// mode returns the mode of a file: clients are executable.
func mode(file string) os.FileMode {
	if path.Base(file) == "client.py" {
		return 0o755
	}
	return 0o644
}

// tell lists the written files and the next steps.
func (i *invocation) tell(directory, name string, files []string) error {
	destination := filepath.Join(directory, name)
	for _, file := range files {
		if _, err := fmt.Fprintln(i.stdout, filepath.Join(destination, file)); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(i.stdout, "%s explains how to test and serve it.\n", filepath.Join(destination, "README.md"))
	return err
}
