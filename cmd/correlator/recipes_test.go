package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
	"gotest.tools/v3/assert"
)

// recipes are the files that docs/first-hour.md uses.
const recipes = "../../deploy/recipes"

// The correlator takes its files, which send to where the Collector's receive.
func TestRecipesOfCorrelator(t *testing.T) {
	for file, endpoint := range map[string]string{
		"correlator-collector.yaml": "http://127.0.0.1:4317",
		"correlator-pyroscope.yaml": "http://127.0.0.1:4040",
	} {
		path := filepath.Join(recipes, file)
		printed := string(command(t, "", "run", "--print-config", "--config", path))
		for _, want := range []string{"endpoint: " + endpoint, "otlp-untraced: true"} {
			assert.Check(t, strings.Contains(printed, want), "%s: no %q in\n%s", file, want, printed)
		}
	}
}

// collectorConfig is the part of a Collector's file that says how it is put together.
type collectorConfig struct {
	Receivers map[string]struct {
		Protocols map[string]struct {
			Endpoint string `yaml:"endpoint"`
		} `yaml:"protocols"`
	} `yaml:"receivers"`
	Exporters map[string]any `yaml:"exporters"`
	Service   struct {
		Pipelines map[string]struct {
			Receivers []string `yaml:"receivers"`
			Exporters []string `yaml:"exporters"`
		} `yaml:"pipelines"`
	} `yaml:"service"`
}

// Files of the Collector receive OTLP where the correlator sends it, from this host alone, since they
// ask for no credentials. They have a pipeline for profiles, all of whose components are defined.
func TestRecipesOfCollector(t *testing.T) {
	for _, file := range []string{"collector.yaml", "elasticsearch.yaml"} {
		text, err := os.ReadFile(filepath.Join(recipes, file))
		assert.NilError(t, err)
		var config collectorConfig
		assert.NilError(t, yaml.Unmarshal(text, &config), file)
		endpoint := config.Receivers["otlp"].Protocols["grpc"].Endpoint
		assert.Check(t, endpoint == "127.0.0.1:4317", "%s: receives at %q", file, endpoint)
		_, ok := config.Service.Pipelines["profiles"]
		assert.Check(t, ok, "%s: no pipeline for profiles", file)
		for signal, pipeline := range config.Service.Pipelines {
			for _, name := range pipeline.Receivers {
				_, ok := config.Receivers[name]
				assert.Check(t, ok, "%s: %s: no receiver %q", file, signal, name)
			}
			for _, name := range pipeline.Exporters {
				_, ok := config.Exporters[name]
				assert.Check(t, ok, "%s: %s: no exporter %q", file, signal, name)
			}
		}
	}
}

// The page uses every file, and only those that there are.
func TestRecipesInPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/first-hour.md")
	assert.NilError(t, err)
	named := make(map[string]bool)
	for _, match := range regexp.MustCompile(`deploy/recipes/([a-z-]+\.yaml)`).FindAllSubmatch(page, -1) {
		named[string(match[1])] = true
	}
	files, err := os.ReadDir(recipes)
	assert.NilError(t, err)
	for _, file := range files {
		if !named[file.Name()] {
			t.Errorf("the page does not name %s", file.Name())
		}
		delete(named, file.Name())
	}
	assert.Check(t, len(named) == 0, "the page names %v", named)
}
