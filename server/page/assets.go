package page

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"html/template"
	"io/fs"
	"path"
)

//go:embed templates/*.html static/*
var files embed.FS

// asset is a file that browsers cache: its path has the hash of its content.
type asset struct {
	contentType string
	content     []byte
}

// assets has the files by path, and their paths by name.
type assets struct {
	byPath map[string]asset
	Paths  map[string]string
}

var assetTypes = map[string]string{".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}

// bound: files of the program
func readAssets() (assets, error) {
	a := assets{byPath: make(map[string]asset), Paths: make(map[string]string)}
	err := fs.WalkDir(files, "static", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := files.ReadFile(name)
		if err != nil {
			return err
		}
		sum := sha256.Sum256(content)
		at := "/static/" + hex.EncodeToString(sum[:8]) + "/" + path.Base(name)
		a.byPath[at] = asset{assetTypes[path.Ext(name)], content}
		a.Paths[path.Base(name)] = at
		return nil
	})
	return a, err
}

func parseTemplates() (*template.Template, error) {
	return template.New("").Funcs(template.FuncMap{
		"bytes": bytesText, "count": countText, "duration": durationText, "url": fileURL,
	}).ParseFS(files, "templates/*.html")
}
