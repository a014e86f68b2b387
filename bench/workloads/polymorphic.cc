/*
 * Objects of many classes behind pointers to their base.
 *
 * Stands for scenes of games and drawing programs, widgets, simulations, plug-in hosts: objects of different sizes are
 * made by new, owned by a unique_ptr, share others by a shared_ptr, and go by a virtual destructor, which frees with
 * the size of the class. Few instructions lie between one call of the allocator and the next.
 *
 * Each step replaces one object of the scene, chosen at random, by one of another class; one step in eight also
 * replaces one of the shared ones, which lives until the last object that uses it goes.
 *
 * Figure: steps per second, with about 1.2 new and as many delete each. Check: each object knows its place, and the sum
 * of the uses of the shared ones is the number of objects.
 *
 *     polymorphic OBJECTS STEPS
 */
#include "arguments.h"
#include "sizes.h"

#include <memory>
#include <utility>
#include <vector>

namespace
{

struct Style {
    explicit Style(uint64_t number) : colour(number) {}
    uint64_t colour;
    double width[9] = {};
};

class Object
{
  public:
    Object(size_t place, std::shared_ptr<Style> style) : place_(place), style_(std::move(style)) {}
    Object(const Object &) = delete;
    Object &operator=(const Object &) = delete;
    virtual ~Object() = default;
    [[nodiscard]] virtual size_t place() const { return place_; }

  protected:
    size_t place_;
    std::shared_ptr<Style> style_;
};

/* As many classes as there are sizes of what they hold. */
template <size_t Words> class Shape final : public Object
{
  public:
    Shape(size_t place, std::shared_ptr<Style> style) : Object(place, std::move(style))
    {
        data_[0] = place;
        data_[Words - 1] = place;
    }
    [[nodiscard]] size_t place() const override
    {
        return data_[0] == place_ && data_[Words - 1] == place_ ? place_ : ~place_;
    }

  private:
    uint64_t data_[Words];
};

template <size_t Words> std::unique_ptr<Object> make(size_t place, std::shared_ptr<Style> style)
{
    return std::make_unique<Shape<Words>>(place, std::move(style));
}

constexpr std::unique_ptr<Object> (*MAKERS[])(size_t, std::shared_ptr<Style>) = {
    make<1>, make<2>, make<3>, make<4>, make<6>, make<8>, make<11>, make<16>, make<24>, make<40>,
};
constexpr size_t CLASSES = sizeof MAKERS / sizeof *MAKERS;
constexpr size_t STYLES = 64;

class Scene
{
  public:
    explicit Scene(size_t objects) : objects_(objects), styles_(STYLES) {}

    void step()
    {
        uint64_t bits = random_next(&state_);
        size_t place = random_below(static_cast<uint32_t>(bits >> 32), objects_.size());
        if (bits % 8 == 0 || !styles_[bits / 8 % STYLES])
            styles_[bits / 8 % STYLES] = std::make_shared<Style>(bits);
        std::unique_ptr<Object> &object = objects_[place];
        if (object && object->place() != place)
            fail("the object at %zu is not what was put there", place);
        object = MAKERS[(bits & 0xffff) * CLASSES >> 16](place, styles_[bits / 8 % STYLES]);
    }

    /* Takes the scene apart. */
    void check_and_clear()
    {
        for (size_t i = 0; i < objects_.size(); i++)
            if (objects_[i] && objects_[i]->place() != i)
                fail("the object at %zu is not what was put there", i);
        objects_.clear();
        for (const auto &style : styles_)
            if (style && style.use_count() != 1)
                fail("a style that nothing uses any more has %ld users", style.use_count() - 1);
    }

  private:
    std::vector<std::unique_ptr<Object>> objects_;
    std::vector<std::shared_ptr<Style>> styles_;
    uint64_t state_ = 1;
};

} // namespace

int main(int argc, char **argv)
{
    size_t objects = count_argument(argc, argv, 1, "OBJECTS");
    size_t steps = count_argument(argc, argv, 2, "STEPS");
    Scene scene(objects);
    stopwatch start = stopwatch_start();
    for (size_t i = 0; i < steps; i++)
        scene.step();
    stopwatch elapsed = stopwatch_read(start);
    scene.check_and_clear();
    report(static_cast<double>(steps) / elapsed.cpu * 1e-6, "Mops/s", elapsed, "steps=%zu", steps);
    return 0;
}
