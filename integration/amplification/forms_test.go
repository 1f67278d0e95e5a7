package amplification

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/token"
	"maps"
	"slices"
	"strconv"
	"strings"
)

const boundary = "b"

// browserForms are the forms of type multipart/form-data with the highest cost for their size.
var browserForms = []jsonForm{
	{kind: "form: empty parts", make: parts("--b\r\n\r\n\r\n")},
	{kind: "form: parts without names", make: parts(part("", ""))},
	{kind: "form: the same name", make: parts(part("INPUT0", "1"))},
	{kind: "form: files", make: parts("--b\r\nContent-Disposition: form-data; name=\"INPUT0\"; filename=\"f\"\r\nContent-Type: image/png\r\n\r\n\r\n")},
	{kind: "form: long name", make: func(size int) []byte { return parts(part(string(letters(size)), ""))(1) }},
	{kind: "form: long text", make: func(size int) []byte { return parts(part("INPUT0", string(letters(size))))(1) }},
	{kind: "form: numbers", make: func(size int) []byte { return parts(part("INPUT0", strings.Repeat("1 ", size/2)))(1) }},
	{kind: "form: headers of a part", make: func(size int) []byte { return parts("--b\r\n" + strings.Repeat("a: b\r\n", size/6) + "\r\n\r\n")(1) }},
	{kind: "form: without an end", make: func(size int) []byte { return []byte(strings.Repeat(part("INPUT0", "1"), size/64)) }},
}

// formsOfFields returns forms that the page accepts, each with one field that is large.
func formsOfFields(token string) (list []jsonForm) {
	values := []jsonForm{
		{kind: "long text", make: letters},
		{kind: "lines", make: func(size int) []byte { return bytes.Repeat([]byte("a\n"), size/2) }},
		{kind: "numbers", make: func(size int) []byte { return bytes.Repeat([]byte("1 "), size/2) }},
		{kind: "escapes", make: func(size int) []byte { return bytes.Repeat([]byte("<"), size) }},
	}
	for _, v := range jsonValues {
		values = append(values, jsonForm{kind: v.kind, make: v.make})
		values = append(values, jsonForm{kind: "member: " + v.kind, make: func(size int) []byte { return withMember(nil, "m", v.make(size)) }})
	}
	good := map[string]string{"token": token, "name.0": textInput, "shape.0": "[-1]", "values.0": "a", "count": "1"}
	for _, field := range fieldsOfForms() {
		for _, v := range values {
			list = append(list, jsonForm{kind: "field " + field + ": " + v.kind, make: func(size int) []byte {
				form := maps.Clone(good)
				form[field] = string(v.make(size))
				var b strings.Builder
				for _, name := range slices.Sorted(maps.Keys(form)) {
					b.WriteString(part(name, form[name]))
				}
				return []byte(b.String() + "--b--\r\n")
			}})
		}
	}
	return list
}

// fieldsOfForms finds the fields that the page reads: the names that it takes from a map of fields,
// those with a number for the first input.
func fieldsOfForms() (names []string) {
	add := func(name ast.Expr) {
		number := ""
		if sum, ok := name.(*ast.BinaryExpr); ok {
			name, number = sum.X, "0"
		}
		if literal, ok := name.(*ast.BasicLit); ok && literal.Kind == token.STRING {
			text, _ := strconv.Unquote(literal.Value)
			names = append(names, text+number)
		}
	}
	inspect("server/page", func(n ast.Node) {
		switch n := n.(type) {
		case *ast.IndexExpr:
			if fmt.Sprint(n.X) == "fields" {
				add(n.Index)
			}
		case *ast.CallExpr:
			if method, ok := n.Fun.(*ast.SelectorExpr); ok && fmt.Sprint(method.X) == "fields" && len(n.Args) == 1 {
				add(n.Args[0])
			}
		}
	})
	slices.Sort(names)
	return slices.Compact(names)
}

// part returns a part of a form.
func part(name, value string) string {
	return "--b\r\nContent-Disposition: form-data; name=\"" + name + "\"\r\n\r\n" + value + "\r\n"
}

// parts returns a function that makes a form of repeated parts.
func parts(one string) func(size int) []byte {
	return func(size int) []byte { return []byte(strings.Repeat(one, max(1, size/len(one))) + "--b--\r\n") }
}
