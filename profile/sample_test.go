package profile

import (
	"reflect"
	"testing"
)

// Each text of a resource counts.
func TestTextBytes(t *testing.T) {
	var r Resource
	want := 0
	var fill func(v reflect.Value)
	fill = func(v reflect.Value) {
		for i := range v.NumField() {
			switch field := v.Field(i); field.Kind() {
			case reflect.String:
				want++
				field.SetString("x")
			case reflect.Struct:
				if field.Type().PkgPath() == v.Type().PkgPath() {
					fill(field)
				}
			}
		}
	}
	fill(reflect.ValueOf(&r).Elem())
	if got := r.TextBytes(); got != want || want < 12 {
		t.Errorf("%d texts count, of %d", got, want)
	}
}
