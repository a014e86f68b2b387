#!/usr/bin/env -S python3 -B
"""ghostscript renders a generated PostScript file and makes a PDF of it, which pdftoppm renders: the pictures must be
equal to those drawn without hakmem."""

from program_test import ProgramTest, check, same

# Pages of a smooth shading, filled and stroked curves, clipping, text in several fonts and sizes, and a sampled image.
POSTSCRIPT = r"""%!PS
/seed 1 def
/next { /seed seed 1103515 mul 12345 add 16#7fffff and def seed exch mod } def
/fonts [ /Times-Roman /Helvetica-Bold /Courier /Times-Italic ] def
1 1 PAGES {
  /page exch def
  gsave 300 400 translate
  << /ShadingType 3 /ColorSpace /DeviceRGB /Coords [0 0 10 0 0 280]
     /Function << /FunctionType 2 /Domain [0 1] /C0 [1 0.9 page 10 div] /C1 [0.2 0.6 1] /N 1.5 >> >> shfill
  grestore
  1 1 900 {
    pop
    100 next 100 div 100 next 100 div 100 next 100 div setrgbcolor
    newpath 600 next 800 next moveto
    3 { 600 next 800 next 600 next 800 next 600 next 800 next curveto } repeat
    5 next 0 eq
    { gsave closepath eoclip 50 { 600 next 800 next 40 0 360 arc fill } repeat grestore }
    { 5 next setlinewidth stroke } ifelse
  } for
  0 setgray
  20 15 780 {
    /y exch def
    fonts page y 15 idiv add 4 mod get findfont 9 page add scalefont setfont
    30 y moveto 8 { 1000000 next 20 string cvs show ( the quick brown fox ) show } repeat
  } for
  gsave 350 50 translate 200 200 scale
  /row 256 string def
  256 256 8 [256 0 0 256 0 0] { 0 1 255 { row exch 256 next put } for row } image
  grestore
  showpage
} for
"""

with ProgramTest("gs", "pdftoppm") as test:
    (test.dir / "in.ps").write_text(POSTSCRIPT.replace("PAGES", "2"))
    gs = ["gs", "-q", "-dBATCH", "-dNOPAUSE", "-dSAFER"]
    for hakmem, name in (False, "plain"), (True, "hakmem"):
        (test.dir / name).mkdir()
        test.run([*gs, "-sDEVICE=ppmraw", "-r100", "-dTextAlphaBits=4", "-dNumRenderingThreads=2",
                  "-dMaxBitmap=1000000", f"-sOutputFile={name}/gs-%d.ppm", "in.ps"], hakmem, loaded=["gs"])
        test.run([*gs, "-sDEVICE=pdfwrite", f"-sOutputFile={name}.pdf", "in.ps"], hakmem, loaded=["gs"])
        # The two PDFs carry their dates and cannot be compared, but what they show can.
        test.run(["pdftoppm", "-r", "100", f"{name}.pdf", f"{name}/pdf"], hakmem, loaded=["pdftoppm"])

    pictures = sorted(path.name for path in (test.dir / "plain").iterdir())
    check(len(pictures) == 4, f"pictures: {pictures}")
    for name in pictures:
        same(name, test.dir / "plain" / name, test.dir / "hakmem" / name)
